// Proves that the thread sanitizer, with the suppressions for gRPC in force, still finds a race
// between a reactor callback and another thread: a list that is too broad fails here.
#include <grpcpp/client_context.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "vitrine/v1/generation.grpc.pb.h"

namespace vitrine::server {
namespace {

int planted = 0;  // Written without a lock, on purpose.

class RacyReactor final : public grpc::ServerWriteReactor<v1::GenerateEvent> {
 public:
  RacyReactor() { StartWrite(&event_); }
  void OnWriteDone(bool /*ok*/) override {
    ++planted;
    if (++writes_ < 200) {
      StartWrite(&event_);
    } else {
      Finish(grpc::Status::OK);
    }
  }
  void OnDone() override { delete this; }

 private:
  v1::GenerateEvent event_;
  int writes_ = 0;
};

class RacyService final : public v1::Generation::CallbackService {
  grpc::ServerWriteReactor<v1::GenerateEvent>* Generate(
      grpc::CallbackServerContext* /*context*/, const v1::GenerateRequest* /*message*/) override {
    return new RacyReactor();
  }
};

void RaceACallbackAgainstAThread() {
  RacyService service;
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    while (!is_over) ++planted;
  });
  const auto stub = v1::Generation::NewStub(server->InProcessChannel({}));
  grpc::ClientContext context;
  const auto reader = stub->Generate(&context, {});
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
  }
  is_over = true;
  other.join();
}

TEST(PlantedRace, IsFound) {
#if defined(__SANITIZE_THREAD__)
  constexpr bool kHasThreadSanitizer = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
  constexpr bool kHasThreadSanitizer = true;
#else
  constexpr bool kHasThreadSanitizer = false;
#endif
#else
  constexpr bool kHasThreadSanitizer = false;
#endif
  if (!kHasThreadSanitizer) GTEST_SKIP() << "built without the thread sanitizer";
  // The sanitizer's report ends the child with its exit code 66.
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        RaceACallbackAgainstAThread();
        std::exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}

}  // namespace
}  // namespace vitrine::server
