#include "kernels/cpu/row_buffer.h"

namespace vitrine::cpu {
namespace {

int BlocksOf(int columns) { return (columns + kBlockColumns - 1) / kBlockColumns; }

size_t TileBytes(int rows, int blocks) {
  const int tiles = (rows + kTileRows - 1) / kTileRows;
  return static_cast<size_t>(tiles) * static_cast<size_t>(blocks) * sizeof(ActivationBlock);
}

// Kernels may read rows up to the end of a tile.
size_t FloatBytes(int rows, int blocks) {
  const int padded = (rows + kTileRows - 1) / kTileRows * kTileRows;
  return static_cast<size_t>(padded) * static_cast<size_t>(blocks) * kBlockColumns * sizeof(float);
}

}  // namespace

size_t CpuRowBuffer::Bytes(int max_rows, int columns, int workers) {
  const int blocks = BlocksOf(columns);
  return TileBytes(max_rows, blocks) + FloatBytes(max_rows, blocks) +
         static_cast<size_t>(workers) *
             (TileBytes(kPrivateRows, blocks) + FloatBytes(kPrivateRows, blocks));
}

CpuRowBuffer::CpuRowBuffer(int max_rows, int columns, bool wants_int8, bool wants_floats,
                           int workers, Buffer memory)
    : RowBuffer(max_rows, columns), memory_(std::move(memory)) {
  VITRINE_CHECK_LE(Bytes(max_rows, columns, workers), memory_.bytes());
  uint8_t* next = memory_.As<uint8_t>().data();
  shared_.blocks = BlocksOf(columns);
  shared_.columns = columns;
  shared_.wants_int8 = wants_int8;
  shared_.wants_floats = wants_floats;
  shared_.tiles = reinterpret_cast<ActivationBlock*>(next);
  next += TileBytes(max_rows, shared_.blocks);
  shared_.floats = reinterpret_cast<float*>(next);
  next += FloatBytes(max_rows, shared_.blocks);
  first_private_ = shared_;
  first_private_.tiles = reinterpret_cast<ActivationBlock*>(next);
  next += static_cast<size_t>(workers) * TileBytes(kPrivateRows, shared_.blocks);
  first_private_.floats = reinterpret_cast<float*>(next);
}

RowView CpuRowBuffer::PrivateTo(int worker) const {
  RowView view = first_private_;
  view.tiles += view.blocks * worker;
  view.floats += view.stride() * static_cast<size_t>(kTileRows) * static_cast<size_t>(worker);
  return view;
}

}  // namespace vitrine::cpu
