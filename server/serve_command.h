// Serving: load the model, listen, wait for a signal, drain.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "model/loader.h"
#include "model/model_files.h"
#include "server/options.h"
#include "server/served_model.h"

namespace vitrine::server {

// A backend and the model on it, in order of construction.
struct ModelOnBackend {
  std::unique_ptr<Backend> backend;
  LoadedModel model;
  ServedModel served;
};

// The files are opened first: what is wrong with them must not cost a backend's memory.
absl::StatusOr<std::unique_ptr<ModelOnBackend>> LoadModelOnBackend(ModelFiles& files,
                                                                   const ServerOptions& options);
absl::StatusOr<std::unique_ptr<ModelOnBackend>> LoadModelOnBackend(const std::string& path,
                                                                   const ServerOptions& options);

// Serves until a signal comes. The exit code.
int RunServer(const ServerOptions& options);

}  // namespace vitrine::server
