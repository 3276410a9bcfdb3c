// launcher: Command: the program of the user's own that the worker's container names, one process
// per rank. In a cluster the kubelet reads these fields; here they are read as it does. Pure.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace dsj::jobspec {

/// The container "worker" of spec.workers.template; null: there is none.
const nlohmann::json& worker_container(const nlohmann::json& worker_template);

/// Its `command` and `args`, one after the other, as written; empty without a command.
std::vector<std::string> user_command(const nlohmann::json& worker_template);

using Lookup = std::function<const std::string*(const std::string& name)>;
/// $(NAME) becomes what `lookup` knows, or stays; $$( is $(.
std::string expand_references(const std::string& text, const Lookup& lookup);

/// Its `env`, in order, each value expanded by those before it and by `lookup`. Only plain values.
std::vector<std::pair<std::string, std::string>> user_environment(
    const nlohmann::json& worker_template, const Lookup& lookup);

}  // namespace dsj::jobspec
