// What goes to stdout and how messages are written as text.
#pragma once

#include <string>
#include <string_view>

namespace google::protobuf {
class Message;
}

namespace vitrine::client {

// Writes to stdout and flushes, so that every token shows at once. False once anything failed: the
// disk is full, the reader gone.
bool WriteOut(std::string_view text);

// One line without a line end: field names as in the .proto, bytes as base64, fields without
// presence also when zero.
std::string ToJson(const google::protobuf::Message& message);

// One "name  value" line per field that has a value, nested names joined by dots, repeated scalars
// on one line; for people.
std::string ToText(const google::protobuf::Message& message);

}  // namespace vitrine::client
