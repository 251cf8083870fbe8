// Options that take more than a number: filters, groups, addresses, keys, names. In each state of a socket,
// one after the other, beside the same on bare TCP: what is answered, what is read back, and that the stream
// goes on.
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/tcp.h>

#include "test/posix/options/option_twins.h"

// Not in the C library's headers.
#ifndef SO_BINDTOIFINDEX
#define SO_BINDTOIFINDEX 62
#endif
#ifndef TCP_FASTOPEN_KEY
#define TCP_FASTOPEN_KEY 33
#endif

namespace posix_test {
namespace {

// The kernel's header for it does not go with the C library's.
struct FlowLabel {
  in6_addr destination;
  uint32_t label;
  uint8_t action, share;
  uint16_t flags, expires, linger;
  uint32_t pad;
};

struct Given {
  const char* what;
  int level;
  int name;
  std::string value;
};
using Sequence = std::vector<Given>;

template <typename T>
std::string Bytes(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string Raw(std::initializer_list<int> bytes) { return std::string(bytes.begin(), bytes.end()); }

bool Works(Pair& pair) {
  return SendAll(pair.client, "to and fro") && ReceiveExactly(pair.server, 10) == "to and fro" &&
         SendAll(pair.server, Pattern(100'000)) && ReceiveExactly(pair.client, 100'000) == Pattern(100'000);
}

void Compare(int family, const Sequence& sequence,
             std::initializer_list<Stage> stages = {Stage::kNew, Stage::kListening, Stage::kClient,
                                                    Stage::kServer}) {
  Twins twins(family);
  Differences differences;
  for (const Stage stage : stages) {
    for (const Given& given : sequence) {
      const std::string where = std::string(Name(stage)) + ", " + given.what;
      const auto size = static_cast<socklen_t>(given.value.size());
      differences.Note(where, SetOurs(twins.ours(stage), given.level, given.name, given.value.data(), size),
                       SetBare(twins.oracle(stage), given.level, given.name, given.value.data(), size));
      for (const socklen_t room : {4u, 16u, 200u}) {
        differences.Note(where + ", read with room for " + std::to_string(room),
                         GetOurs(twins.ours(stage), given.level, given.name, room),
                         GetBare(twins.oracle(stage), given.level, given.name, room));
      }
    }
  }
  differences.Check();
  REQUIRE(Works(twins.pair));
  Pair next = ConnectTo(twins.listener);
  REQUIRE(Works(next));
}

std::string Program(const sock_filter* instructions, unsigned short count) {
  return Bytes(sock_fprog{.len = count, .filter = const_cast<sock_filter*>(instructions)});
}

TEST_CASE("option structures: filters are attached, replaced, refused, taken off and locked") {
  static const sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, ~0u)};
  static const sock_filter also_all[] = {BPF_STMT(BPF_LD | BPF_IMM, 7), BPF_STMT(BPF_RET | BPF_K, ~0u)};
  static const sock_filter endless[] = {BPF_STMT(BPF_LD | BPF_IMM, 7)};
  static const sock_filter unknown[] = {BPF_STMT(0xffff, 1)};
  const std::string none = Bytes(0);
  Compare(GENERATE(AF_INET, AF_INET6),
          {{"no filter to take off", SOL_SOCKET, SO_DETACH_FILTER, none},
           {"a filter without instructions", SOL_SOCKET, SO_ATTACH_FILTER, Program(all, 0)},
           {"a filter at no address", SOL_SOCKET, SO_ATTACH_FILTER, Program(nullptr, 1)},
           {"a filter that is too long", SOL_SOCKET, SO_ATTACH_FILTER, Program(all, 5000)},
           {"a filter without an end", SOL_SOCKET, SO_ATTACH_FILTER, Program(endless, 1)},
           {"an unknown instruction", SOL_SOCKET, SO_ATTACH_FILTER, Program(unknown, 1)},
           {"half a structure", SOL_SOCKET, SO_ATTACH_FILTER, Program(all, 1).substr(0, 6)},
           {"all pass", SOL_SOCKET, SO_ATTACH_FILTER, Program(all, 1)},
           {"another", SOL_SOCKET, SO_ATTACH_FILTER, Program(also_all, 2)},
           {"a program of no descriptor", SOL_SOCKET, SO_ATTACH_BPF, Bytes(-1)},
           {"a program that is a terminal", SOL_SOCKET, SO_ATTACH_BPF, Bytes(0)},
           {"a program of half a number", SOL_SOCKET, SO_ATTACH_BPF, std::string(2, '\0')},
           {"a program to choose by", SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, Program(all, 1)},
           {"one of no descriptor", SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, Bytes(-1)},
           {"none to choose by", SOL_SOCKET, 68 /* SO_DETACH_REUSEPORT_BPF */, none},
           {"taken off", SOL_SOCKET, SO_DETACH_FILTER, none},
           {"taken off twice", SOL_SOCKET, SO_DETACH_FILTER, none},
           {"all pass again", SOL_SOCKET, SO_ATTACH_FILTER, Program(all, 1)},
           {"locked", SOL_SOCKET, SO_LOCK_FILTER, Bytes(1)},
           {"replaced though locked", SOL_SOCKET, SO_ATTACH_FILTER, Program(also_all, 2)},
           {"replaced by a program though locked", SOL_SOCKET, SO_ATTACH_BPF, Bytes(-1)},
           {"taken off though locked", SOL_SOCKET, SO_DETACH_FILTER, none},
           {"unlocked", SOL_SOCKET, SO_LOCK_FILTER, Bytes(0)},
           {"locked twice", SOL_SOCKET, SO_LOCK_FILTER, Bytes(1)}});
}

in_addr Host(const char* address) {
  in_addr host{};
  inet_pton(AF_INET, address, &host);
  return host;
}
sockaddr_storage In(const char* address) {
  sockaddr_storage storage{};
  auto& in = reinterpret_cast<sockaddr_in&>(storage);
  in.sin_family = AF_INET;
  in.sin_addr = Host(address);
  return storage;
}
sockaddr_storage In6(const char* address) {
  sockaddr_storage storage{};
  auto& in = reinterpret_cast<sockaddr_in6&>(storage);
  in.sin6_family = AF_INET6;
  inet_pton(AF_INET6, address, &in.sin6_addr);
  return storage;
}

Sequence AnyGroup(int level, const sockaddr_storage& group, const sockaddr_storage& source) {
  const group_req joined{.gr_interface = 1, .gr_group = group};
  const group_source_req from{.gsr_interface = 1, .gsr_group = group, .gsr_source = source};
  group_filter filter{};
  filter.gf_interface = 1;
  filter.gf_group = group;
  filter.gf_fmode = MCAST_INCLUDE;
  filter.gf_numsrc = 1;
  filter.gf_slist[0] = source;
  return {{"MCAST_JOIN_GROUP", level, MCAST_JOIN_GROUP, Bytes(joined)},
          {"MCAST_JOIN_GROUP, too short", level, MCAST_JOIN_GROUP, Bytes(joined).substr(0, 8)},
          {"MCAST_JOIN_SOURCE_GROUP", level, MCAST_JOIN_SOURCE_GROUP, Bytes(from)},
          {"MCAST_BLOCK_SOURCE", level, MCAST_BLOCK_SOURCE, Bytes(from)},
          {"MCAST_UNBLOCK_SOURCE", level, MCAST_UNBLOCK_SOURCE, Bytes(from)},
          {"MCAST_MSFILTER", level, MCAST_MSFILTER, Bytes(filter)},
          {"MCAST_LEAVE_SOURCE_GROUP", level, MCAST_LEAVE_SOURCE_GROUP, Bytes(from)},
          {"MCAST_LEAVE_GROUP", level, MCAST_LEAVE_GROUP, Bytes(joined)}};
}

TEST_CASE("option structures: groups of IPv4") {
  const in_addr group = Host("239.1.2.3"), here = Host("127.0.0.1"), there = Host("10.1.2.3");
  const ip_mreq two{.imr_multiaddr = group, .imr_interface = here};
  const ip_mreqn three{.imr_multiaddr = group, .imr_address = here, .imr_ifindex = 1};
  const ip_mreq_source from{.imr_multiaddr = group, .imr_interface = here, .imr_sourceaddr = there};
  ip_msfilter filter{};
  filter.imsf_multiaddr = group;
  filter.imsf_interface = here;
  filter.imsf_fmode = MCAST_INCLUDE;
  filter.imsf_numsrc = 1;
  filter.imsf_slist[0] = there;
  Sequence all{{"IP_ADD_MEMBERSHIP, ip_mreq", IPPROTO_IP, IP_ADD_MEMBERSHIP, Bytes(two)},
               {"IP_ADD_MEMBERSHIP, ip_mreqn", IPPROTO_IP, IP_ADD_MEMBERSHIP, Bytes(three)},
               {"IP_ADD_MEMBERSHIP, too short", IPPROTO_IP, IP_ADD_MEMBERSHIP, Bytes(here)},
               {"IP_DROP_MEMBERSHIP", IPPROTO_IP, IP_DROP_MEMBERSHIP, Bytes(three)},
               {"IP_ADD_SOURCE_MEMBERSHIP", IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP, Bytes(from)},
               {"IP_BLOCK_SOURCE", IPPROTO_IP, IP_BLOCK_SOURCE, Bytes(from)},
               {"IP_UNBLOCK_SOURCE", IPPROTO_IP, IP_UNBLOCK_SOURCE, Bytes(from)},
               {"IP_DROP_SOURCE_MEMBERSHIP", IPPROTO_IP, IP_DROP_SOURCE_MEMBERSHIP, Bytes(from)},
               {"IP_MSFILTER", IPPROTO_IP, IP_MSFILTER, Bytes(filter)},
               {"IP_MULTICAST_IF, in_addr", IPPROTO_IP, IP_MULTICAST_IF, Bytes(here)},
               {"IP_MULTICAST_IF, ip_mreq", IPPROTO_IP, IP_MULTICAST_IF, Bytes(two)},
               {"IP_MULTICAST_IF, ip_mreqn", IPPROTO_IP, IP_MULTICAST_IF, Bytes(three)},
               {"IP_MULTICAST_TTL, a byte", IPPROTO_IP, IP_MULTICAST_TTL, Raw({3})},
               {"IP_MULTICAST_LOOP, a byte", IPPROTO_IP, IP_MULTICAST_LOOP, Raw({0})},
               {"IP_MULTICAST_ALL", IPPROTO_IP, IP_MULTICAST_ALL, Bytes(0)},
               {"IP_UNICAST_IF", IPPROTO_IP, IP_UNICAST_IF, Bytes(htonl(1))}};
  for (const Given& given : AnyGroup(IPPROTO_IP, In("239.1.2.3"), In("10.1.2.3"))) all.push_back(given);
  Compare(GENERATE(AF_INET, AF_INET6), all);
}

TEST_CASE("option structures: groups of IPv6") {
  ipv6_mreq group{};
  inet_pton(AF_INET6, "ff02::1:2", &group.ipv6mr_multiaddr);
  group.ipv6mr_interface = 1;
  ipv6_mreq anycast = group;
  inet_pton(AF_INET6, "::1", &anycast.ipv6mr_multiaddr);
  Sequence all{{"IPV6_JOIN_GROUP", IPPROTO_IPV6, IPV6_JOIN_GROUP, Bytes(group)},
               {"IPV6_JOIN_GROUP, too short", IPPROTO_IPV6, IPV6_JOIN_GROUP, Bytes(1)},
               {"IPV6_LEAVE_GROUP", IPPROTO_IPV6, IPV6_LEAVE_GROUP, Bytes(group)},
               {"IPV6_JOIN_ANYCAST", IPPROTO_IPV6, IPV6_JOIN_ANYCAST, Bytes(anycast)},
               {"IPV6_LEAVE_ANYCAST", IPPROTO_IPV6, IPV6_LEAVE_ANYCAST, Bytes(anycast)},
               {"IPV6_MULTICAST_IF", IPPROTO_IPV6, IPV6_MULTICAST_IF, Bytes(1)},
               {"IPV6_MULTICAST_HOPS", IPPROTO_IPV6, IPV6_MULTICAST_HOPS, Bytes(3)},
               {"IPV6_MULTICAST_LOOP", IPPROTO_IPV6, IPV6_MULTICAST_LOOP, Bytes(0)},
               {"IPV6_MULTICAST_ALL", IPPROTO_IPV6, 29, Bytes(0)},
               {"IPV6_UNICAST_IF", IPPROTO_IPV6, 76, Bytes(htonl(1))}};
  for (const Given& given : AnyGroup(IPPROTO_IPV6, In6("ff02::1:2"), In6("fd00::1"))) all.push_back(given);
  Compare(GENERATE(AF_INET, AF_INET6), all);
}

TEST_CASE("option structures: options of the packets") {
  Compare(GENERATE(AF_INET, AF_INET6),
          {{"IP_OPTIONS, nothing to do", IPPROTO_IP, IP_OPTIONS, Raw({1, 1, 1, 0})},
           {"IP_OPTIONS, a record of the route", IPPROTO_IP, IP_OPTIONS, Raw({7, 7, 4, 0, 0, 0, 0, 0})},
           {"IP_OPTIONS, malformed", IPPROTO_IP, IP_OPTIONS, Raw({7, 99, 4, 0})},
           {"IP_OPTIONS, too long", IPPROTO_IP, IP_OPTIONS, std::string(41, '\1')},
           {"IP_OPTIONS, none", IPPROTO_IP, IP_OPTIONS, ""},
           {"IP_TOS, a byte", IPPROTO_IP, IP_TOS, Raw({0x10})},
           {"IP_TTL, a byte", IPPROTO_IP, IP_TTL, Raw({44})}});
}

TEST_CASE("option structures: options of IPv6's packets") {
  in6_pktinfo sticky{};
  sticky.ipi6_ifindex = 1;
  in6_pktinfo other = sticky;
  other.ipi6_ifindex = 9999;
  FlowLabel label{};
  label.destination = in6addr_loopback;
  label.label = htonl(0x12345);
  label.action = 0;   // get
  label.flags = 1;    // create
  label.share = 255;  // with anybody
  const std::string padding = Raw({0, 0, 1, 4, 0, 0, 0, 0});
  Compare(AF_INET6, {{"IPV6_PKTINFO", IPPROTO_IPV6, IPV6_PKTINFO, Bytes(sticky)},
                     {"IPV6_PKTINFO of another device", IPPROTO_IPV6, IPV6_PKTINFO, Bytes(other)},
                     {"IPV6_PKTINFO, too short", IPPROTO_IPV6, IPV6_PKTINFO, Bytes(1)},
                     {"IPV6_HOPOPTS", IPPROTO_IPV6, IPV6_HOPOPTS, padding},
                     {"IPV6_HOPOPTS, none", IPPROTO_IPV6, IPV6_HOPOPTS, ""},
                     {"IPV6_DSTOPTS", IPPROTO_IPV6, IPV6_DSTOPTS, padding},
                     {"IPV6_DSTOPTS, none", IPPROTO_IPV6, IPV6_DSTOPTS, ""},
                     {"IPV6_RTHDRDSTOPTS", IPPROTO_IPV6, IPV6_RTHDRDSTOPTS, padding},
                     {"IPV6_RTHDRDSTOPTS, none", IPPROTO_IPV6, IPV6_RTHDRDSTOPTS, ""},
                     {"IPV6_RTHDR, malformed", IPPROTO_IPV6, IPV6_RTHDR, padding},
                     {"IPV6_2292PKTOPTIONS", IPPROTO_IPV6, IPV6_2292PKTOPTIONS, ""},
                     {"IPV6_FLOWLABEL_MGR", IPPROTO_IPV6, 32, Bytes(label)},
                     {"IPV6_FLOWLABEL_MGR, too short", IPPROTO_IPV6, 32, Bytes(1)},
                     {"IPV6_ADDRFORM, IPv4", IPPROTO_IPV6, IPV6_ADDRFORM, Bytes(AF_INET)},
                     {"IPV6_ADDRFORM, IPv6", IPPROTO_IPV6, IPV6_ADDRFORM, Bytes(AF_INET6)}});
}

TEST_CASE("option structures: devices") {
  Compare(GENERATE(AF_INET, AF_INET6),
          {{"SO_BINDTODEVICE, none such", SOL_SOCKET, SO_BINDTODEVICE, "no-such-device"},
           {"SO_BINDTODEVICE", SOL_SOCKET, SO_BINDTODEVICE, "lo"},
           {"SO_BINDTODEVICE with its end", SOL_SOCKET, SO_BINDTODEVICE, std::string("lo", 3)},
           {"SO_BINDTODEVICE, too long", SOL_SOCKET, SO_BINDTODEVICE, std::string(40, 'x')},
           {"SO_BINDTODEVICE, none", SOL_SOCKET, SO_BINDTODEVICE, ""},
           {"SO_BINDTOIFINDEX", SOL_SOCKET, SO_BINDTOIFINDEX, Bytes(1)},
           {"SO_BINDTOIFINDEX, none such", SOL_SOCKET, SO_BINDTOIFINDEX, Bytes(99'999)},
           {"SO_BINDTOIFINDEX, negative", SOL_SOCKET, SO_BINDTOIFINDEX, Bytes(-1)},
           {"SO_BINDTOIFINDEX, none", SOL_SOCKET, SO_BINDTOIFINDEX, Bytes(0)}});
}

TEST_CASE("option structures: times") {
  const struct {
    int clock;
    uint32_t flags;
  } departure{CLOCK_TAI, 0}, no_clock{77, 0};
  const int64_t new_time[2] = {3, 4000};
  Sequence all;
  for (const int name : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    all.push_back({"a time", SOL_SOCKET, name, Bytes(timeval{.tv_sec = 7, .tv_usec = 250'000})});
    all.push_back(
        {"too many microseconds", SOL_SOCKET, name, Bytes(timeval{.tv_sec = 1, .tv_usec = 1'000'000})});
    all.push_back({"negative microseconds", SOL_SOCKET, name, Bytes(timeval{.tv_sec = 1, .tv_usec = -1})});
    all.push_back(
        {"a very long time", SOL_SOCKET, name, Bytes(timeval{.tv_sec = int64_t{1} << 60, .tv_usec = 0})});
    all.push_back({"half a time", SOL_SOCKET, name, Bytes(timeval{}).substr(0, 8)});
    all.push_back({"a negative time", SOL_SOCKET, name, Bytes(timeval{.tv_sec = -5, .tv_usec = 0})});
    all.push_back({"no time", SOL_SOCKET, name, Bytes(timeval{})});
  }
  all.push_back({"SO_RCVTIMEO_NEW", SOL_SOCKET, 66, Bytes(new_time)});
  all.push_back({"SO_SNDTIMEO_NEW", SOL_SOCKET, 67, Bytes(new_time)});
  all.push_back({"SO_LINGER", SOL_SOCKET, SO_LINGER, Bytes(linger{.l_onoff = 1, .l_linger = 5})});
  all.push_back({"SO_LINGER off", SOL_SOCKET, SO_LINGER, Bytes(linger{.l_onoff = 0, .l_linger = 9})});
  all.push_back({"half of SO_LINGER", SOL_SOCKET, SO_LINGER, Bytes(1)});
  all.push_back({"SO_TXTIME", SOL_SOCKET, 61, Bytes(departure)});
  all.push_back({"SO_TXTIME by no clock", SOL_SOCKET, 61, Bytes(no_clock)});
  Compare(GENERATE(AF_INET, AF_INET6), all);
}

TEST_CASE("option structures: keys") {
  const int family = GENERATE(AF_INET, AF_INET6);
  tcp_md5sig key{};
  key.tcpm_addr = family == AF_INET ? In("10.1.2.3") : In6("fd00::1");
  key.tcpm_keylen = 6;
  std::memcpy(key.tcpm_key, "secret", 6);
  tcp_md5sig too_long = key, gone = key, of_a_net = key, of_no_family = key;
  too_long.tcpm_keylen = 81;
  gone.tcpm_keylen = 0;
  of_a_net.tcpm_flags = TCP_MD5SIG_FLAG_PREFIX;
  of_a_net.tcpm_prefixlen = 8;
  of_no_family.tcpm_addr.ss_family = AF_UNIX;
  Compare(family, {{"TCP_MD5SIG, none to take away", IPPROTO_TCP, TCP_MD5SIG, Bytes(gone)},
                   {"TCP_MD5SIG", IPPROTO_TCP, TCP_MD5SIG, Bytes(key)},
                   {"TCP_MD5SIG, too long", IPPROTO_TCP, TCP_MD5SIG, Bytes(too_long)},
                   {"TCP_MD5SIG, too short", IPPROTO_TCP, TCP_MD5SIG, Bytes(key).substr(0, 100)},
                   {"TCP_MD5SIG of no family", IPPROTO_TCP, TCP_MD5SIG, Bytes(of_no_family)},
                   {"TCP_MD5SIG_EXT", IPPROTO_TCP, TCP_MD5SIG_EXT, Bytes(of_a_net)},
                   {"TCP_MD5SIG, taken away", IPPROTO_TCP, TCP_MD5SIG, Bytes(gone)},
                   {"TCP_FASTOPEN_KEY", IPPROTO_TCP, TCP_FASTOPEN_KEY, std::string(16, 'k')},
                   {"TCP_FASTOPEN_KEY, two", IPPROTO_TCP, TCP_FASTOPEN_KEY,
                    std::string(16, 'k') + std::string(16, 'b')},
                   {"TCP_FASTOPEN_KEY, too short", IPPROTO_TCP, TCP_FASTOPEN_KEY, std::string(15, 'k')},
                   {"TCP_FASTOPEN_KEY, none", IPPROTO_TCP, TCP_FASTOPEN_KEY, ""}});
}

// "tls" where the kernel has it would be a known difference for a connection.
TEST_CASE("option structures: protocols above, by name") {
  const int family = GENERATE(AF_INET, AF_INET6);
  Compare(family, {{"TCP_ULP, none such", IPPROTO_TCP, TCP_ULP, "no-such-protocol"},
                   {"TCP_ULP, without a name", IPPROTO_TCP, TCP_ULP, ""},
                   {"TCP_ULP, a name that is too long", IPPROTO_TCP, TCP_ULP, std::string(100, 'x')}});
  Compare(family, {{"TCP_ULP, tls", IPPROTO_TCP, TCP_ULP, "tls"}}, {Stage::kNew, Stage::kListening});
}

TEST_CASE("option structures: a new socket's TCP_REPAIR is as the kernel allows it", "[unconnected]") {
  BareFd bare = BareSocket(AF_INET);
  Fd ours = TcpSocket();
  Differences differences;
  for (const int value : {1, 5, -1, 0}) {
    differences.Note("TCP_REPAIR " + std::to_string(value),
                     SetOurs(ours, IPPROTO_TCP, TCP_REPAIR, &value, sizeof value),
                     SetBare(bare.get(), IPPROTO_TCP, TCP_REPAIR, &value, sizeof value));
    differences.Note("read", GetOurs(ours, IPPROTO_TCP, TCP_REPAIR, 4),
                     GetBare(bare.get(), IPPROTO_TCP, TCP_REPAIR, 4));
  }
  differences.Check();
}

// --- IPV6_ADDRFORM of a connection over IPv4

Address MappedLoopback(uint16_t port) {
  Address address = Any(AF_INET6, port);
  inet_pton(AF_INET6, "::ffff:127.0.0.1", &reinterpret_cast<sockaddr_in6&>(address.storage).sin6_addr);
  return address;
}

std::string Name(Address address) {
  return std::to_string(address.storage.ss_family) + " of " + std::to_string(address.length) + ", " +
         address.ToString().substr(0, address.ToString().rfind(':'));
}

TEST_CASE("option structures: IPV6_ADDRFORM makes an IPv4 socket of one whose peer has an IPv4 address") {
  Listener listener{TcpSocket(AF_INET6), Any(AF_INET6)};
  REQUIRE(bind(listener.fd, listener.address.get(), listener.address.length) == 0);
  REQUIRE(listen(listener.fd, 8) == 0);
  Pair ours;
  ours.client = TcpSocket(AF_INET6);
  Address target = MappedLoopback(LocalOf(listener.fd).port());
  REQUIRE(connect(ours.client, target.get(), target.length) == 0);
  ours.server.reset(accept(listener.fd, nullptr, nullptr));

  BarePair bare;
  bare.listener = BareSocket(AF_INET6);
  Address any = Any(AF_INET6);
  REQUIRE(syscall(SYS_bind, bare.listener.get(), any.get(), any.length) == 0);
  REQUIRE(syscall(SYS_listen, bare.listener.get(), 8) == 0);
  Address local;
  REQUIRE(syscall(SYS_getsockname, bare.listener.get(), local.get(), &local.length) == 0);
  target = MappedLoopback(local.port());
  bare.client = BareSocket(AF_INET6);
  REQUIRE(syscall(SYS_connect, bare.client.get(), target.get(), target.length) == 0);
  bare.server = BareFd(syscall(SYS_accept, bare.listener.get(), nullptr, nullptr));

  Differences differences;
  for (const auto& [mine, theirs, who] : {std::tuple(ours.client.get(), bare.client.get(), "client"),
                                          std::tuple(ours.server.get(), bare.server.get(), "server")}) {
    const auto compare = [&, mine = mine, theirs = theirs, who = std::string(who)](const std::string& when) {
      for (const auto& [level, name] :
           std::initializer_list<std::pair<int, int>>{{SOL_SOCKET, SO_DOMAIN},
                                                      {IPPROTO_IPV6, IPV6_V6ONLY},
                                                      {IPPROTO_IPV6, IPV6_ADDRFORM},
                                                      {IPPROTO_IPV6, IPV6_UNICAST_HOPS},
                                                      {IPPROTO_IP, IP_TTL}}) {
        differences.Note(who + " " + when + ", option " + std::to_string(level) + " " + std::to_string(name),
                         GetOurs(mine, level, name, 4), GetBare(theirs, level, name, 4));
      }
    };
    compare("before");
    for (const int form : {AF_INET6, 77, AF_INET, AF_INET}) {
      differences.Note(who + std::string(" to ") + std::to_string(form),
                       SetOurs(mine, IPPROTO_IPV6, IPV6_ADDRFORM, &form, sizeof form),
                       SetBare(theirs, IPPROTO_IPV6, IPV6_ADDRFORM, &form, sizeof form));
      compare("after " + std::to_string(form));
    }
    Address own, peer;
    REQUIRE(syscall(SYS_getsockname, theirs, own.get(), &own.length) == 0);
    REQUIRE(syscall(SYS_getpeername, theirs, peer.get(), &peer.length) == 0);
    REQUIRE(Name(LocalOf(mine)) == Name(own));
    REQUIRE(Name(PeerOf(mine)) == Name(peer));
  }
  differences.Check();
  REQUIRE(Works(ours));
}

}  // namespace
}  // namespace posix_test
