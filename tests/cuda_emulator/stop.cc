#include "cuda_emulator/stop.h"

#include <stdexcept>

#include "cuda_emulator/block.h"
#include "cuda_emulator/sanitizer.h"

namespace vitrine::emu {

std::string ToString(Site site) { return std::string(site.file) + ":" + std::to_string(site.line); }

EMU_NO_MSAN std::string StopReason(const std::function<void()>& run) {
  try {
    run();
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

void Fail(const std::string& message, Site site) {
  std::string text = message;
  if (site.line != 0) text += " at " + ToString(site);
  if (const Thread* thread = CurrentThread()) text += " [" + Name(*thread) + "]";
  throw std::runtime_error(text);
}

}  // namespace vitrine::emu
