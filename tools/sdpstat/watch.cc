// The live screen.
#include <ncurses.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tools/sdpstat/live.h"
#include "tools/sdpstat/render.h"

namespace sdp::sdpstat {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kHelp[] = {
    "q       quit",
    "s  S    sort by the next, the previous column: rate, in, out, total, process, peer",
    "r       the other way round",
    "/       filter, as of ss: state established and dport = :80 and process nginx",
    "a       with and without sockets that are TCP",
    "p       pause, go on",
    "+  -    look more, less often",
    "up, down, page up and down, home: move through the rows",
    "left, right: move through the columns; the first one stays",
    "h       this text"};
constexpr double kQuickest = 0.1, kSlowest = 60;

class Screen {
 public:
  explicit Screen(const WatchSource& source)
      : source_(source), interval_(source.interval.count()), filter_text_(source.filter) {
    options_.fallbacks = source.fallbacks;
    SetFilter(source.filter);
    setlocale(LC_ALL, "");
    initscr();
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
  }
  ~Screen() { endwin(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Run() {
    now_ = source_.read();
    before_ = now_;
    looked_ = Clock::now();
    Draw();
    while (!done_) {
      const auto due =
          looked_ + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(interval_));
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(due - Clock::now()).count();
      timeout(paused_ ? -1 : static_cast<int>(std::clamp<long>(left + 1, 0, 60'000)));
      const int key = getch();
      if (key != ERR) HandleKey(key);
      if (!paused_ && Clock::now() >= due) Look();
      Draw();
    }
  }

 private:
  void Look() {
    before_ = std::move(now_);
    now_ = source_.read();
    const auto at = Clock::now();
    elapsed_ = at - looked_;
    looked_ = at;
  }

  void HandleKey(int key) {
    message_.clear();
    const bool was_help = help_;
    help_ = false;
    const int page = std::max(1, LINES - 4);
    constexpr int kKeys = static_cast<int>(SortKey::kKeys);
    switch (key) {
      case 'q':
      case 'Q':
        done_ = true;
        break;
      case 's':
        options_.key = static_cast<SortKey>((static_cast<int>(options_.key) + 1) % kKeys);
        break;
      case 'S':
        options_.key = static_cast<SortKey>((static_cast<int>(options_.key) + kKeys - 1) % kKeys);
        break;
      case 'r':
        options_.reversed = !options_.reversed;
        break;
      case 'a':
        options_.fallbacks = !options_.fallbacks;
        break;
      case 'p':
        paused_ = !paused_;
        break;
      case '+':
        interval_ = std::max(kQuickest, interval_ / 2);
        break;
      case '-':
        interval_ = std::min(kSlowest, interval_ * 2);
        break;
      case '/':
        AskForFilter();
        break;
      case 'h':
      case '?':
        help_ = !was_help;
        break;
      case KEY_DOWN:
        ++first_;
        break;
      case KEY_UP:
        --first_;
        break;
      case KEY_NPAGE:
        first_ += page;
        break;
      case KEY_PPAGE:
        first_ -= page;
        break;
      case KEY_HOME:
        first_ = 0;
        hidden_ = 0;
        break;
      case KEY_RIGHT:
        ++hidden_;
        break;
      case KEY_LEFT:
        hidden_ -= hidden_ > 0 ? 1 : 0;
        break;
      default:
        break;
    }
  }

  void SetFilter(const std::string& text) {
    auto filter = ParseFilter({text});
    if (!filter) {
      message_ = "filter: " + filter.error();
      return;
    }
    filter_text_ = text;
    options_.filter = std::move(*filter);
    first_ = 0;
  }

  void AskForFilter() {
    std::string text = filter_text_;
    timeout(-1);
    curs_set(1);
    for (;;) {
      move(LINES - 1, 0);
      clrtoeol();
      addnstr(("filter: " + text).c_str(), std::max(0, COLS - 1));
      const int key = getch();
      if (key == '\n' || key == KEY_ENTER) {
        SetFilter(text);
        break;
      }
      if (key == 27 || key == ERR) break;
      if (key == KEY_BACKSPACE || key == 127 || key == '\b') {
        if (!text.empty()) text.pop_back();
      } else if (key == 21) {  // Ctrl-U
        text.clear();
      } else if (key >= ' ' && key <= '~') {
        text += static_cast<char>(key);
      }
    }
    curs_set(0);
  }

  void Line(int row, const std::string& text, attr_t attributes = A_NORMAL) const {
    if (row < 0 || row >= LINES) return;
    attrset(attributes);
    mvaddnstr(row, 0, text.c_str(), COLS);
    attrset(A_NORMAL);
  }

  void Draw() {
    erase();
    const LiveView view = Compare(before_, now_, elapsed_, options_);
    Line(0, "sdpstat  " + std::to_string(view.processes) + " processes, " + std::to_string(view.connections) +
                " connections, " + std::to_string(view.listeners) + " listeners, " +
                std::to_string(view.fallbacks) + " TCP   in " +
                HumanBytes(static_cast<uint64_t>(view.in_rate)) + "/s  out " +
                HumanBytes(static_cast<uint64_t>(view.out_rate)) + "/s");
    if (help_) {
      int row = 2;
      for (const char* text : kHelp) Line(row++, text);
    } else {
      DrawRows(RenderLive(view));
    }
    DrawStatus();
    refresh();
  }

  void DrawRows(const LiveTable& table) {
    hidden_ = std::min(hidden_, MostHidden(table));
    const std::vector<std::string> lines =
        ScrollSideways(table, hidden_, static_cast<size_t>(std::max(0, COLS)));
    const int rows = static_cast<int>(lines.size()) - 1;
    const int room = std::max(1, LINES - 4);
    first_ = std::clamp(first_, 0, std::max(0, rows - room));
    Line(2,
         lines[0] +
             std::string(static_cast<size_t>(std::max(0, COLS - static_cast<int>(lines[0].size()))), ' '),
         A_REVERSE);
    for (int i = 0; i < room && first_ + i < rows; ++i)
      Line(3 + i, lines[static_cast<size_t>(1 + first_ + i)]);
    if (rows == 0) Line(4, filter_text_.empty() ? "Nothing runs over SDP." : "Nothing matches the filter.");
  }

  void DrawStatus() const {
    char interval[32];
    std::snprintf(interval, sizeof interval, "%.1f s", interval_);
    std::string text = message_;
    if (text.empty()) {
      text = std::string("sorted by ") + ToString(options_.key) + (options_.reversed ? ", reversed" : "") +
             "   every " + interval + (paused_ ? ", paused" : "") +
             (options_.fallbacks ? "   with TCP" : "") +
             (filter_text_.empty() ? "" : "   filter: " + filter_text_) + "   h help, q quit";
    }
    Line(LINES - 1, text, message_.empty() ? A_DIM : A_BOLD);
  }

  const WatchSource& source_;
  double interval_;
  LiveOptions options_;
  std::string filter_text_;
  std::string message_;
  stats::Snapshot before_, now_;
  Clock::time_point looked_;
  std::chrono::duration<double> elapsed_{1};
  int first_ = 0;
  size_t hidden_ = 0;  // columns that are scrolled out of sight
  bool paused_ = false;
  bool help_ = false;
  bool done_ = false;
};

// For a pipe: the rows, an empty line, and so on, until the reader is gone.
int Stream(const WatchSource& source) {
  auto filter = ParseFilter({source.filter});
  LiveOptions options{.fallbacks = source.fallbacks, .filter = filter ? std::move(*filter) : Filter()};
  stats::Snapshot before = source.read();
  for (auto looked = Clock::now();;) {
    std::this_thread::sleep_for(source.interval);
    stats::Snapshot now = source.read();
    const auto at = Clock::now();
    for (const std::string& line : RenderLive(Compare(before, now, at - looked, options)).lines)
      std::puts(line.c_str());
    std::puts("");
    if (std::fflush(stdout) != 0) return 0;
    before = std::move(now);
    looked = at;
  }
}

}  // namespace

int Watch(const WatchSource& source) {
  const char* terminal = getenv("TERM");
  if (!isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) return Stream(source);
  if (terminal == nullptr || *terminal == '\0') {
    std::fputs("sdpstat: --watch needs TERM to say which terminal this is\n", stderr);
    return 1;
  }
  Screen(source).Run();
  return 0;
}

}  // namespace sdp::sdpstat
