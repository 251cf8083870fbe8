// A shared object that the program is linked with, and whose destructor has something to say
// (process_exit_test.cc).
namespace {

void (*farewell)() = nullptr;

__attribute__((destructor)) void SayFarewell() {
  if (farewell != nullptr) farewell();
}

}  // namespace

extern "C" __attribute__((visibility("default"))) void PosixTestSetFarewell(void (*function)()) {
  farewell = function;
}
