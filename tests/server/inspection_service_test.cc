// What inspection shows over the wire: live, afterwards, and to whom it is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/server/server_fixture.h"
#include "vitrine/v1/control.grpc.pb.h"
#include "vitrine/v1/inspection.grpc.pb.h"

namespace vitrine::server {
namespace {

using testing::HasSubstr;

class InspectionTest : public GrpcServerTest {
 protected:
  void StartInspection() {
    ServerOptions options = TestOptions();
    options.allow_inspection = true;
    options.inspection_bytes = int64_t{64} << 20;
    options.inspection_retention_us = 60'000'000;
    StartServer(options);
    inspection_ = v1::Inspection::NewStub(channel_);
  }
  void TearDown() override {
    inspection_.reset();
    GrpcServerTest::TearDown();
  }

  static v1::GenerateRequest TracedRequest() {
    v1::GenerateRequest request = Request("who looked at whom", 9);
    v1::AttentionSpec& spec = *request.mutable_attention();
    spec.add_queries(v1::QUERY_SET_ALL);
    spec.add_outputs()->mutable_dense()->set_dtype(v1::ELEMENT_TYPE_F32);
    return request;
  }

  static std::vector<v1::AttentionChunk> ChunksOf(const Streamed& streamed) {
    std::vector<v1::AttentionChunk> chunks;
    for (const v1::GenerateEvent& event : streamed.events) {
      if (event.has_attention()) chunks.push_back(event.attention());
    }
    return chunks;
  }

  // Data of all chunks, in order of rows.
  static std::map<uint32_t, std::string> DataByRow(const std::vector<v1::AttentionChunk>& chunks) {
    std::map<uint32_t, std::string> data;
    for (const v1::AttentionChunk& chunk : chunks) {
      if (chunk.has_values() && chunk.rows_size() == 1) {
        data[chunk.rows(0).query_position()] += chunk.values().data();
      }
    }
    return data;
  }

  grpc::Status Replay(const v1::GetAttentionRequest& request,
                      std::vector<v1::AttentionChunk>& chunks) {
    grpc::ClientContext context;
    const auto reader = inspection_->GetAttention(&context, request);
    v1::AttentionChunk chunk;
    while (reader->Read(&chunk)) {
      EXPECT_EQ(chunk.sequence_number(), chunks.size());
      chunks.push_back(chunk);
    }
    return reader->Finish();
  }

  std::unique_ptr<v1::Inspection::Stub> inspection_;
};

TEST_F(InspectionTest, ARequestIsSeenLiveAndAfterwards) {
  StartInspection();
  v1::GenerateRequest request = TracedRequest();
  request.set_client_request_id("mine");
  const Streamed streamed = Generate(request);
  ASSERT_TRUE(streamed.status.ok()) << streamed.status.error_message();
  EXPECT_EQ(streamed.ids(), Expected("who looked at whom", 9));
  const std::vector<v1::AttentionChunk> live = ChunksOf(streamed);
  const std::string id = streamed.events.front().accepted().request_id();
  ASSERT_TRUE(live.back().has_trace_end());
  EXPECT_EQ(live.back().trace_end().status(), v1::TRACE_STATUS_OK);
  EXPECT_EQ(live.back().trace_end().bytes(), streamed.done().usage().attention_bytes());
  EXPECT_EQ(live.front().request_id(), id);
  EXPECT_EQ(live.front().provenance().method(), v1::ATTENTION_METHOD_RECOMPUTED);

  v1::GetAttentionRequest replay;
  replay.set_request_id(id);
  *replay.mutable_spec() = request.attention();
  std::vector<v1::AttentionChunk> replayed;
  const grpc::Status status = Replay(replay, replayed);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(replayed.front().provenance().method(), v1::ATTENTION_METHOD_REPLAYED);
  EXPECT_EQ(replayed.front().request_id(), id);
  EXPECT_EQ(replayed.back().trace_end().bytes(), live.back().trace_end().bytes());
  EXPECT_EQ(DataByRow(replayed), DataByRow(live));

  grpc::ClientContext context;
  v1::GetRequestRequest get;
  get.set_request_id(id);
  v1::GetRequestResponse kept;
  ASSERT_TRUE(inspection_->GetRequest(&context, get, &kept).ok());
  EXPECT_EQ(kept.state(), v1::REQUEST_STATE_FINISHED);
  EXPECT_EQ(kept.client_request_id(), "mine");
  EXPECT_EQ(kept.prompt_token_ids_size(), 19);
  EXPECT_EQ(kept.prompt_byte_offsets_size(), 20);
  ASSERT_EQ(kept.choices_size(), 1);
  EXPECT_EQ(kept.choices(0).token_ids_size(), 9);
  EXPECT_EQ(kept.choices(0).reason(), v1::FINISH_REASON_MAX_TOKENS);
  EXPECT_EQ(kept.timeline(0).kind(), v1::TIMELINE_EVENT_KIND_QUEUED);
  EXPECT_EQ(kept.usage().attention_bytes(), live.back().trace_end().bytes());
  EXPECT_TRUE(kept.has_kept_for());

  Generate(Request("another", 2));
  grpc::ClientContext list_context;
  v1::ListRequestsRequest list;
  list.set_page_size(1);
  v1::ListRequestsResponse page;
  ASSERT_TRUE(inspection_->ListRequests(&list_context, list, &page).ok());
  ASSERT_EQ(page.requests_size(), 1);
  EXPECT_NE(page.requests(0).request_id(), id);
  list.set_page_token(page.next_page_token());
  grpc::ClientContext next_context;
  ASSERT_TRUE(inspection_->ListRequests(&next_context, list, &page).ok());
  EXPECT_EQ(page.requests(0).request_id(), id);
  EXPECT_EQ(page.next_page_token(), "");
}

TEST_F(InspectionTest, OffIsRefusedWithTheFlagThatTurnsItOn) {
  StartServer();
  inspection_ = v1::Inspection::NewStub(channel_);
  std::vector<v1::AttentionChunk> chunks;
  grpc::ClientContext get_context;
  grpc::ClientContext list_context;
  v1::GetRequestResponse kept;
  v1::ListRequestsResponse page;
  for (const grpc::Status& status :
       {Replay({}, chunks), inspection_->GetRequest(&get_context, {}, &kept),
        inspection_->ListRequests(&list_context, {}, &page), Generate(TracedRequest()).status}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
    EXPECT_THAT(status.error_message(), HasSubstr("--allow_inspection"));
  }
}

TEST_F(InspectionTest, DescribeModelTellsWhatIsOnOffer) {
  StartInspection();
  const auto control = v1::Control::NewStub(channel_);
  grpc::ClientContext context;
  v1::DescribeModelResponse model;
  ASSERT_TRUE(control->DescribeModel(&context, {}, &model).ok());
  EXPECT_THAT(model.capabilities().request_fields(), testing::Contains("attention"));
  EXPECT_THAT(model.capabilities().attention_outputs(),
              testing::ElementsAre("stats", "top_k", "span_mass", "column_sum", "dense", "tile"));
  EXPECT_EQ(model.limits().inspection_bytes(), uint64_t{64} << 20);
  EXPECT_EQ(model.limits().inspection_retention().seconds(), 60);
}

TEST_F(InspectionTest, BadAskingIsRefused) {
  StartInspection();
  std::vector<v1::AttentionChunk> chunks;
  v1::GetAttentionRequest replay;
  replay.set_request_id("req-0");
  EXPECT_EQ(Replay(replay, chunks).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::GenerateResponse response;
  EXPECT_EQ(Unary(TracedRequest(), &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  grpc::ClientContext context;
  v1::ListRequestsRequest list;
  list.set_page_size(0);
  v1::ListRequestsResponse page;
  EXPECT_EQ(inspection_->ListRequests(&context, list, &page).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

}  // namespace
}  // namespace vitrine::server
