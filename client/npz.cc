#include "client/npz.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <ios>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace vitrine::client {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are written as they lie");

constexpr size_t kNpyAlignment = 64;
constexpr size_t kNpyPrefixBytes = 10;  // Magic, version, length of the header.

// Of the zip format: polynomial 0xEDB88320, reflected.
constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? 0xEDB88320u : 0);
    table[i] = value;
  }
  return table;
}

uint32_t AddCrc(uint32_t crc, std::string_view data) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  crc = ~crc;
  for (const char c : data)
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xFFu];
  return ~crc;
}

void AppendNumber(uint64_t value, int bytes, std::string* out) {
  for (int i = 0; i < bytes; ++i) out->push_back(static_cast<char>((value >> (8 * i)) & 0xFFu));
}

std::string NpyHeader(std::string_view type, const std::vector<size_t>& shape) {
  std::string dict =
      absl::StrCat("{'descr': '", std::string(type), "', 'fortran_order': False, 'shape': (");
  for (const size_t length : shape) absl::StrAppend(&dict, length, ",");
  dict += "), }";
  const size_t unpadded = kNpyPrefixBytes + dict.size() + 1;
  dict.append((kNpyAlignment - unpadded % kNpyAlignment) % kNpyAlignment, ' ');
  dict += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  AppendNumber(dict.size(), 2, &header);
  return header + dict;
}

// What a file's own header and its entry in the directory share.
std::string SharedFields(uint32_t crc, uint32_t bytes, size_t name_bytes) {
  std::string fields;
  AppendNumber(20, 2, &fields);      // Version needed: 2.0.
  AppendNumber(0, 2, &fields);       // Flags.
  AppendNumber(0, 2, &fields);       // Stored.
  AppendNumber(0, 2, &fields);       // Time.
  AppendNumber(0x0021, 2, &fields);  // Date: 1 January 1980, the first there is.
  AppendNumber(crc, 4, &fields);
  AppendNumber(bytes, 4, &fields);  // Compressed.
  AppendNumber(bytes, 4, &fields);
  AppendNumber(name_bytes, 2, &fields);
  AppendNumber(0, 2, &fields);  // Extra field.
  return fields;
}

template <typename T>
std::string_view BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

}  // namespace

NpzWriter::NpzWriter(const std::string& path) : file_(path, std::ios::binary | std::ios::trunc) {
  if (!file_) status_ = absl::UnknownError(absl::StrCat("cannot write ", path));
}

void NpzWriter::Write(std::string_view data) {
  if (!status_.ok()) return;
  written_ += data.size();
  if (written_ > std::numeric_limits<uint32_t>::max()) {
    status_ = absl::ResourceExhaustedError("an npz file holds at most 4 GiB");
  } else if (!file_.write(data.data(), static_cast<std::streamsize>(data.size()))) {
    status_ = absl::UnknownError("cannot write the npz file");
  }
}

void NpzWriter::Add(std::string_view name, const std::vector<size_t>& shape,
                    const std::vector<float>& values) {
  AddBytes(name, "<f4", shape, BytesOf(values));
}

void NpzWriter::Add(std::string_view name, const std::vector<size_t>& shape,
                    const std::vector<uint32_t>& values) {
  AddBytes(name, "<u4", shape, BytesOf(values));
}

void NpzWriter::Add(std::string_view name, const std::vector<std::string>& values) {
  size_t longest = 1;
  for (const std::string& value : values) longest = std::max(longest, value.size());
  std::string data;
  for (const std::string& value : values) {
    data += value;
    data.append(longest - value.size(), '\0');
  }
  AddBytes(name, absl::StrCat("|S", longest), {values.size()}, data);
}

void NpzWriter::AddBytes(std::string_view name, std::string_view type,
                         const std::vector<size_t>& shape, std::string_view data) {
  const std::string header = NpyHeader(type, shape);
  const Entry entry = {.name = absl::StrCat(std::string(name), ".npy"),
                       .crc = AddCrc(AddCrc(0, header), data),
                       .bytes = static_cast<uint32_t>(header.size() + data.size()),
                       .offset = static_cast<uint32_t>(written_)};
  std::string local = "PK\x03\x04";
  local += SharedFields(entry.crc, entry.bytes, entry.name.size());
  Write(local + entry.name);
  Write(header);
  Write(data);
  entries_.push_back(entry);
}

absl::Status NpzWriter::Finish() {
  const uint64_t begin = written_;
  for (const Entry& entry : entries_) {
    std::string record = "PK\x01\x02";
    AppendNumber(20, 2, &record);  // Made by version 2.0.
    record += SharedFields(entry.crc, entry.bytes, entry.name.size());
    AppendNumber(0, 6, &record);  // Comment, disk, internal attributes.
    AppendNumber(0, 4, &record);  // External attributes.
    AppendNumber(entry.offset, 4, &record);
    Write(record + entry.name);
  }
  const uint64_t bytes = written_ - begin;
  std::string end = "PK\x05\x06";
  AppendNumber(0, 4, &end);  // This disk, and the one of the directory.
  AppendNumber(entries_.size(), 2, &end);
  AppendNumber(entries_.size(), 2, &end);
  AppendNumber(bytes, 4, &end);
  AppendNumber(begin, 4, &end);
  AppendNumber(0, 2, &end);  // Comment.
  Write(end);
  file_.close();
  if (status_.ok() && !file_) status_ = absl::UnknownError("cannot write the npz file");
  return status_;
}

}  // namespace vitrine::client
