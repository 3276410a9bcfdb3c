// See ../README.md.
#pragma once

#include <gloo/context.h>
