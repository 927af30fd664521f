#pragma once

#include "kernels/embed.h"

namespace vitrine::reference {

void Embed(const EmbedArgs& args);

}  // namespace vitrine::reference
