// Requests that have broken other servers (tests/data/hostile/README.md): each has its stated
// outcome, and the server goes on as if nothing had happened.
#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/server/server_fixture.h"

namespace vitrine::server {
namespace {

using Json = nlohmann::json;

constexpr int kSmallContext = 64;

// A request in the protocol's words. `skip`: the protocol cannot express it.
struct Mapped {
  v1::GenerateRequest message;
  std::string skip;
  std::optional<int> deadline_ms;
};

class HostileRequestsTest : public GrpcServerTest {
 protected:
  // "V-1", "L+1", "nan", or a number.
  double Number(const Json& value) const {
    if (value.is_number()) return value.get<double>();
    const std::string text = value.get<std::string>();
    if (text == "nan") return std::nan("");
    if (text == "+inf") return HUGE_VAL;
    if (text == "-inf") return -HUGE_VAL;
    if (text[0] != 'V' && text[0] != 'L') return std::stod(text);
    const int base = text[0] == 'V' ? tokenizer_.vocabulary() : kSmallContext;
    return base + (text.size() > 1 ? std::stod(text.substr(1)) : 0);
  }

  static std::string Unhex(const std::string& hex) {
    std::string bytes;
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
      bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
    return bytes;
  }

  std::string Bytes(const Json& value) const {
    if (value.is_string()) return value.get<std::string>();
    if (value.contains("hex")) return Unhex(value["hex"]);
    std::string bytes;
    const std::string unit = Unhex(value["repeat"]);
    const auto count = static_cast<size_t>(Number(value["n"]));
    bytes.reserve(count * unit.size());
    for (size_t i = 0; i < count; ++i) bytes += unit;
    return bytes + (value.contains("then") ? Unhex(value["then"]) : "");
  }

  // visit(element) for every element of a list, or of {"repeat": element, "n": count}: up to a
  // million, which would take a sanitizer minutes to copy.
  template <class Visit>
  void ForEach(const Json& value, Visit&& visit) const {
    if (value.is_array()) {
      for (const Json& element : value) visit(element);
      return;
    }
    const int count = static_cast<int>(Number(value["n"]));
    const Json& element = value["repeat"];
    for (int i = 0; i < count; ++i) visit(element);
  }

  // False: not a value of an unsigned field of `bits` bits.
  static bool IsUnsigned(double value, int bits) {
    return value >= 0 && value < std::ldexp(1.0, bits);
  }

  void MapPrompt(const std::string& key, const Json& value, Mapped& mapped) const {
    if (key == "prompt") {
      if (!value.is_null()) mapped.message.set_text(Bytes(value));
      return;
    }
    if (mapped.message.has_text()) mapped.skip = "a oneof holds text or ids, not both";
    auto& ids = *mapped.message.mutable_token_ids();
    ForEach(value, [&](const Json& id) {
      if (!IsUnsigned(Number(id), 32)) mapped.skip = "not a uint32: " + id.dump();
      if (mapped.skip.empty()) ids.add_ids(static_cast<uint32_t>(Number(id)));
    });
  }

  void MapStop(const std::string& key, const Json& value, Mapped& mapped) const {
    auto& stop = *mapped.message.mutable_stop();
    if (key == "stop") {
      ForEach(value, [&](const Json& text) { stop.add_stop_strings(Bytes(text)); });
    } else if (key == "ignore_eos") {
      stop.set_ignore_eos(value.get<bool>());
    } else if (key == "stop_ids") {
      for (const Json& id : value) {
        if (!IsUnsigned(Number(id), 32)) {
          mapped.skip = "not a uint32: " + id.dump();
        } else {
          stop.add_stop_token_ids(static_cast<uint32_t>(Number(id)));
        }
      }
    } else if (!IsUnsigned(Number(value), 32)) {
      mapped.skip = "not a uint32: " + value.dump();
    } else if (key == "max_tokens") {
      stop.set_max_tokens(static_cast<uint32_t>(Number(value)));
    } else {
      stop.set_min_tokens(static_cast<uint32_t>(Number(value)));
    }
  }

  // A list of [id, bias]; {"each": "V", "value": X} has one for every token.
  void MapLogitBias(const Json& value, Mapped& mapped) const {
    const auto add = [&mapped](double id, double number) {
      v1::LogitBias& bias = *mapped.message.mutable_sampling()->add_logit_bias();
      bias.set_token_id(static_cast<uint32_t>(id));
      bias.set_bias(static_cast<float>(number));
    };
    if (value.is_object() && value.contains("each")) {
      const double number = Number(value["value"]);
      for (int id = 0; id < tokenizer_.vocabulary(); ++id) add(id, number);
      return;
    }
    ForEach(value, [&](const Json& entry) {
      if (!IsUnsigned(Number(entry[0]), 32)) {
        mapped.skip = "not a uint32: " + entry[0].dump();
      } else {
        add(Number(entry[0]), Number(entry[1]));
      }
    });
  }

  void MapSampling(const std::string& key, const Json& value, Mapped& mapped) const {
    auto& sampling = *mapped.message.mutable_sampling();
    if (key == "seed") return sampling.set_seed(value.get<uint64_t>());
    if (key == "top_k") return sampling.set_top_k(value.get<int32_t>());
    if (key == "logit_bias") return MapLogitBias(value, mapped);
    const auto number = static_cast<float>(Number(value));
    if (key == "temperature") return sampling.set_temperature(number);
    if (key == "top_p") return sampling.set_top_p(number);
    if (key == "min_p") return sampling.set_min_p(number);
    if (key == "repetition_penalty") return sampling.set_repetition_penalty(number);
    if (key == "presence_penalty") return sampling.set_presence_penalty(number);
    mapped.skip = "no such field: " + key;
  }

  void MapOutput(const std::string& key, const Json& value, Mapped& mapped) const {
    if (!IsUnsigned(Number(value), 32)) {
      mapped.skip = "not a uint32: " + value.dump();
      return;
    }
    const auto number = static_cast<uint32_t>(Number(value));
    auto& output = *mapped.message.mutable_output();
    if (key == "n") {
      output.set_n(number);
    } else {
      output.set_logprobs(number);
    }
  }

  // What a list of heads, layers or rows names; empty: "all".
  std::vector<int> Indices(const Json& value) const {
    std::vector<int> indices;
    if (value == "all") return indices;
    ForEach(value, [&](const Json& index) { indices.push_back(index.get<int>()); });
    return indices;
  }

  // "all", a list of rows, or {from, to}.
  static void MapQueries(const Json& value, v1::AttentionSpec& spec) {
    if (value == "all") return spec.add_queries(v1::QUERY_SET_ALL);
    const auto add = [&](const Json& begin, const Json& end, uint32_t past) {
      v1::Range& range = *spec.add_query_ranges();
      range.set_begin(begin.get<uint32_t>());
      range.set_end(end.get<uint32_t>() + past);
    };
    if (value.is_object()) return add(value["from"], value["to"], 0);
    for (const Json& row : value) add(row, row, 1);
  }

  void MapAttention(const Json& value, v1::AttentionSpec& spec) const {
    spec.add_outputs()->mutable_dense()->set_dtype(v1::ELEMENT_TYPE_F32);
    for (const int layer : Indices(value.value("layers", Json("all")))) {
      spec.mutable_grid()->add_layers(layer);
    }
    for (const int head : Indices(value.value("heads", Json("all")))) {
      spec.mutable_grid()->add_heads(static_cast<uint32_t>(head));
    }
    if (value.contains("queries")) MapQueries(value["queries"], spec);
  }

  Mapped Map(const Json& input) const {
    static const std::set<std::string> kStop = {"stop", "ignore_eos", "stop_ids", "max_tokens",
                                                "min_tokens"};
    static const std::set<std::string> kElsewhere = {"copies", "cancel_after_ms", "then_again",
                                                     "server"};
    Mapped mapped;
    for (const auto& [key, value] : input.items()) {
      if (key == "prompt" || key == "prompt_ids") {
        MapPrompt(key, value, mapped);
      } else if (kStop.contains(key)) {
        MapStop(key, value, mapped);
      } else if (key == "n" || key == "top_logprobs") {
        MapOutput(key, value, mapped);
      } else if (key == "client_id") {
        mapped.message.set_client_request_id(value.get<std::string>());
      } else if (key == "deadline_ms") {
        mapped.deadline_ms = value.get<int>();
      } else if (key == "attention") {
        MapAttention(value, *mapped.message.mutable_attention());
      } else if (!kElsewhere.contains(key)) {
        MapSampling(key, value, mapped);
      }
    }
    return mapped;
  }

  Streamed Send(const Mapped& mapped) {
    grpc::ClientContext context;
    if (mapped.deadline_ms) {
      context.set_deadline(std::chrono::system_clock::now() + milliseconds(*mapped.deadline_ms));
    }
    return Generate(mapped.message, context);
  }

  static std::string CodeName(grpc::StatusCode code) {
    switch (code) {
      case grpc::StatusCode::OK:
        return "OK";
      case grpc::StatusCode::INVALID_ARGUMENT:
        return "INVALID_ARGUMENT";
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return "DEADLINE_EXCEEDED";
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return "RESOURCE_EXHAUSTED";
      case grpc::StatusCode::FAILED_PRECONDITION:
        return "FAILED_PRECONDITION";
      default:
        return std::to_string(code);
    }
  }

  bool IsExpected(const Json& entry, const grpc::Status& status) const {
    const Json& expect = entry["expect"];
    if (entry["kind"] == "attention" && !options_.allow_inspection) {
      return status.error_code() == grpc::StatusCode::FAILED_PRECONDITION &&
             status.error_message().find("attention") != std::string::npos;
    }
    // The contract differs: a negative layer counts from the last one.
    if (entry["id"] == "ask/attention-layer-negative") return status.ok();
    std::vector<std::string> outcomes = {expect["outcome"]};
    if (expect.contains("or")) {
      for (const Json& other : expect["or"]) outcomes.push_back(other);
    }
    for (const std::string& outcome : outcomes) {
      if (outcome == "ok" && status.ok()) return true;
      if (outcome != "error-status") continue;
      const Json wanted = expect.value("status", Json("INVALID_ARGUMENT"));
      const std::string code = CodeName(status.error_code());
      if (wanted == code) return true;
    }
    return false;
  }

  // Each request of the file whose id begins with `prefix`. Returns how many were sent.
  int SendAll(const std::string& prefix) {
    std::ifstream file(VITRINE_TEST_DATA "/hostile/requests.jsonl");
    EXPECT_TRUE(file.good());
    int sent = 0;
    std::string line;
    while (std::getline(file, line)) {
      const Json entry = Json::parse(line);
      const std::string id = entry["id"];
      if (!id.starts_with(prefix)) continue;
      SCOPED_TRACE(id);
      const Mapped mapped = Map(entry["input"]);
      if (!mapped.skip.empty()) {
        std::printf("not sent: %s: %s\n", id.c_str(), mapped.skip.c_str());
        continue;
      }
      ++sent;
      SendOne(entry, mapped);
      EXPECT_EQ(Generate(plain_).ids(), Expected("plain", 20));
    }
    return sent;
  }

  void SendOne(const Json& entry, const Mapped& mapped) {
    const Json& input = entry["input"];
    const Json& expect = entry["expect"];
    std::thread neighbour;
    if (expect.contains("neighbour")) {
      const Mapped other = Map(expect["neighbour"]);
      const Streamed alone = Send(other);
      neighbour = std::thread([this, other, alone] { EXPECT_EQ(Send(other).ids(), alone.ids()); });
    }
    // gRPC counts in whole milliseconds, rounded up: slower than that, no answer comes before.
    step_us_ = mapped.deadline_ms ? 5000 : 0;
    const int copies = input.value("copies", 1) + input.value("then_again", 0);
    for (int copy = 0; copy < copies; ++copy) {
      const Streamed streamed = Send(mapped);
      EXPECT_TRUE(IsExpected(entry, streamed.status))
          << CodeName(streamed.status.error_code()) << ": " << streamed.status.error_message();
      CheckDetails(expect, mapped, streamed);
    }
    step_us_ = 0;
    if (neighbour.joinable()) neighbour.join();
  }

  void CheckDetails(const Json& expect, const Mapped& mapped, const Streamed& streamed) {
    EXPECT_LE(streamed.status.error_message().size(), 512u);
    EXPECT_LE(streamed.status.error_details().size(), 4096u);
    if (expect.contains("offset") && !streamed.status.ok()) {
      const std::string offset = "byte " + expect["offset"].dump();
      const bool was_too_long = streamed.status.error_message().find("tokens") != std::string::npos;
      EXPECT_TRUE(was_too_long || streamed.status.error_message().ends_with(offset))
          << streamed.status.error_message();
    }
    // "2 x 4 x 62 x 62 x 4 = 123008 bytes is over the limit": the refusal says so.
    if (mapped.message.has_attention() &&
        streamed.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
      EXPECT_NE(streamed.status.error_message().find("123008"), std::string::npos)
          << streamed.status.error_message();
    }
    if (expect.contains("tokens") && streamed.status.ok()) {
      EXPECT_EQ(streamed.tokens.size(), expect["tokens"].get<size_t>());
    }
    if (expect.contains("same_as")) {
      Mapped same = mapped;
      for (const auto& [key, value] : expect["same_as"].items()) MapSampling(key, value, same);
      // The model of this test draws by a hash, so equality is the sampler's business; here: both
      // are accepted.
      EXPECT_TRUE(Send(same).status.ok());
    }
  }

  const v1::GenerateRequest plain_ = Request("plain", 20);
};

TEST_F(HostileRequestsTest, EveryRequestHasItsOutcomeAndTheServerGoesOn) {
  StartServer(TestOptions(), /*blocks=*/16, kSmallContext);
  EXPECT_GT(SendAll(""), 90);
}

TEST_F(HostileRequestsTest, SoHaveThoseAboutAttentionWhereItIsAllowed) {
  ServerOptions options = TestOptions();
  options.allow_inspection = true;
  options.inspection_bytes = 32768;
  options.inspection_retention_us = 60'000'000;
  StartServer(options, /*blocks=*/16, kSmallContext);
  EXPECT_EQ(SendAll("ask/attention-"), 7);
}

}  // namespace
}  // namespace vitrine::server
