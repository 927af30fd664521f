#include "client/output.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/duration.pb.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace vitrine::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

using Lines = std::vector<std::pair<std::string, std::string>>;

std::string ScalarText(const Message& message, const FieldDescriptor* field, int index) {
  std::string text;
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    const google::protobuf::Reflection* reflection = message.GetReflection();
    return index < 0 ? reflection->GetString(message, field)
                     : reflection->GetRepeatedString(message, field, index);
  }
  TextFormat::PrintFieldValueToString(message, field, index, &text);
  return text;
}

void AppendLines(const std::string& prefix, const Message& message, Lines* lines);

std::string RepeatedItem(const Message& message, const FieldDescriptor* field, int index) {
  if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    return ScalarText(message, field, index);
  }
  Lines lines;
  AppendLines("", message.GetReflection()->GetRepeatedMessage(message, field, index), &lines);
  std::string item;
  for (const auto& [name, value] : lines) {
    absl::StrAppend(&item, item.empty() ? "" : " ", name, "=", value);
  }
  return item;
}

// Equal neighbours are counted: the layers of a model are often all alike.
void AppendRepeated(const std::string& name, const Message& message, const FieldDescriptor* field,
                    Lines* lines) {
  const int size = message.GetReflection()->FieldSize(message, field);
  std::string line;
  for (int begin = 0, end = 0; begin < size; begin = end) {
    const std::string item = RepeatedItem(message, field, begin);
    for (end = begin + 1; end < size && RepeatedItem(message, field, end) == item;) ++end;
    absl::StrAppend(&line, begin == 0 ? "" : ", ", item);
    if (end - begin > 1) absl::StrAppend(&line, " (", end - begin, " times)");
  }
  if (size > 0) lines->emplace_back(name, line);
}

void AppendLines(const std::string& prefix, const Message& message, Lines* lines) {
  const google::protobuf::Descriptor* descriptor = message.GetDescriptor();
  const google::protobuf::Reflection* reflection = message.GetReflection();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const FieldDescriptor* field = descriptor->field(i);
    const std::string name = absl::StrCat(prefix, field->name());
    if (field->is_repeated()) {
      AppendRepeated(name, message, field, lines);
      continue;
    }
    if (field->has_presence() && !reflection->HasField(message, field)) continue;
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      lines->emplace_back(name, ScalarText(message, field, -1));
      continue;
    }
    const Message& inner = reflection->GetMessage(message, field);
    if (inner.GetDescriptor() == google::protobuf::Duration::descriptor()) {
      google::protobuf::Duration duration;
      duration.CopyFrom(inner);
      lines->emplace_back(name, google::protobuf::util::TimeUtil::ToString(duration));
    } else {
      AppendLines(name + ".", inner, lines);
    }
  }
}

}  // namespace

bool WriteOut(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
}

std::string ToJson(const Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails only for messages that hold an unknown Any; no message of ours has one.
  static_cast<void>(google::protobuf::util::MessageToJsonString(message, &json, options));
  return json;
}

std::string ToText(const Message& message) {
  Lines lines;
  AppendLines("", message, &lines);
  size_t width = 0;
  for (const auto& [name, value] : lines) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : lines) {
    absl::StrAppend(&text, name, std::string(width - name.size() + 2, ' '), value, "\n");
  }
  return text;
}

}  // namespace vitrine::client
