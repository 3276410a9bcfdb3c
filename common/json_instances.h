// nlohmann/json compiled once: what is declared here is instantiated in json_instances.cc, and every file that sees the
// declarations links against it instead of compiling it again. They stand in the precompiled headers only; without one a
// file compiles its own instances, and nothing else changes. `detail` is the library's own: a new version of it that no
// longer has these names fails to compile here, in one place.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

// DSJ_JSON_READER(prefix, J, I): reading J from the iterators I.
#define DSJ_JSON_READER(prefix, J, I)                                                                         \
  prefix class nlohmann::detail::lexer<J, nlohmann::detail::iterator_input_adapter<I>>;                       \
  prefix class nlohmann::detail::parser<J, nlohmann::detail::iterator_input_adapter<I>>;                      \
  prefix bool nlohmann::detail::parser<J, nlohmann::detail::iterator_input_adapter<I>>::sax_parse_internal(   \
      nlohmann::detail::json_sax_dom_parser<J>*);                                                             \
  prefix bool nlohmann::detail::parser<J, nlohmann::detail::iterator_input_adapter<I>>::sax_parse_internal(   \
      nlohmann::detail::json_sax_dom_callback_parser<J>*);

#define DSJ_JSON_INSTANCES(prefix, J)                             \
  prefix class J;                                                 \
  prefix class nlohmann::detail::serializer<J>;                   \
  prefix class nlohmann::detail::json_sax_dom_parser<J>;          \
  prefix class nlohmann::detail::json_sax_dom_callback_parser<J>; \
  DSJ_JSON_READER(prefix, J, std::string::const_iterator)         \
  DSJ_JSON_READER(prefix, J, const char*)

DSJ_JSON_INSTANCES(extern template, nlohmann::basic_json<>)
DSJ_JSON_INSTANCES(extern template, nlohmann::basic_json<nlohmann::ordered_map>)
