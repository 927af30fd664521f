// Who may call what, over the wire: deny by default.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/server/server_fixture.h"
#include "vitrine/v1/control.grpc.pb.h"
#include "vitrine/v1/inspection.grpc.pb.h"

namespace vitrine::server {
namespace {

constexpr char kUser[] = "token-of-the-first-user";
constexpr char kOther[] = "token-of-the-other-user";
constexpr char kOperator[] = "token-of-the-operator";

class CallerTest : public GrpcServerTest {
 protected:
  void StartWithCallers() {
    ServerOptions options = TestOptions();
    options.auth_tokens_file = testing::TempDir() + "/callers";
    std::ofstream(options.auth_tokens_file) << "user data " << kUser << "\nother data " << kOther
                                            << "\noperator control " << kOperator << "\n";
    StartServer(options);
  }

  Streamed GenerateAs(const v1::GenerateRequest& request, const std::string& token) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", "Bearer " + token);
    return Generate(request, context);
  }
};

// Every method of every service of the package, as the descriptors have them.
std::vector<std::string> AllMethods() {
  std::vector<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::GenerateRequest::descriptor()->file(), v1::GetAttentionRequest::descriptor()->file(),
        v1::GetLoadRequest::descriptor()->file()}) {
    for (int i = 0; i < file->service_count(); ++i) {
      const google::protobuf::ServiceDescriptor& service = *file->service(i);
      for (int j = 0; j < service.method_count(); ++j) {
        methods.push_back("/" + service.full_name() + "/" + service.method(j)->name());
      }
    }
  }
  return methods;
}

// An empty message: a status is all that is asked for.
grpc::Status CallWithoutToken(const std::shared_ptr<grpc::Channel>& channel,
                              const std::string& method) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  grpc::ByteBuffer response;
  grpc::Status status;
  const grpc::Slice nothing("");
  const auto call = stub.PrepareUnaryCall(&context, method, grpc::ByteBuffer(&nothing, 1), &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  EXPECT_TRUE(queue.Next(&tag, &ok));
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

TEST_F(CallerTest, EveryMethodRefusesCallersWithoutAToken) {
  StartWithCallers();
  int refused = 0;
  for (const std::string& method : AllMethods()) {
    const grpc::StatusCode code = CallWithoutToken(channel_, method).error_code();
    EXPECT_EQ(code, grpc::StatusCode::UNAUTHENTICATED) << method;
    ++refused;
  }
  EXPECT_GE(refused, 10);
  grpc::ClientContext context;
  grpc::health::v1::HealthCheckResponse health;
  EXPECT_TRUE(grpc::health::v1::Health::NewStub(channel_)->Check(&context, {}, &health).ok());
}

TEST_F(CallerTest, ScopesAreAuthorisedApart) {
  StartWithCallers();
  EXPECT_TRUE(GenerateAs(Request("hello", 3), kUser).status.ok());
  EXPECT_EQ(GenerateAs(Request("hello", 3), kOperator).status.error_code(),
            grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(GenerateAs(Request("hello", 3), "token-of-nobody-at-all").status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  // Attention in a stream is inspection, too.
  v1::GenerateRequest looks = Request("hello", 3);
  looks.mutable_attention();
  EXPECT_EQ(GenerateAs(looks, kUser).status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  const auto control = v1::Control::NewStub(channel_);
  for (const auto& [token, code] : {std::pair(kUser, grpc::StatusCode::PERMISSION_DENIED),
                                    std::pair(kOperator, grpc::StatusCode::OK)}) {
    grpc::ClientContext context;
    context.AddMetadata("authorization", std::string("Bearer ") + token);
    v1::GetLoadResponse load;
    EXPECT_EQ(control->GetLoad(&context, {}, &load).error_code(), code);
  }
}

TEST_F(CallerTest, TwoTokensAreNone) {
  StartWithCallers();
  grpc::ClientContext context;
  context.AddMetadata("authorization", std::string("Bearer ") + kUser);
  context.AddMetadata("authorization", std::string("Bearer ") + kOther);
  EXPECT_EQ(Generate(Request("hello", 3), context).status.error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
}

// One connection, two callers: identity belongs to the call, and so does the prefix cache.
TEST_F(CallerTest, CallersShareNoCachedPrefix) {
  StartWithCallers();
  const v1::GenerateRequest request = Request(std::string(99, 'p'), 4);
  EXPECT_EQ(GenerateAs(request, kUser).done().usage().cached_prompt_tokens(), 0u);
  EXPECT_EQ(GenerateAs(request, kOther).done().usage().cached_prompt_tokens(), 0u);
  EXPECT_EQ(GenerateAs(request, kUser).done().usage().cached_prompt_tokens(), 96u);
}

}  // namespace
}  // namespace vitrine::server
