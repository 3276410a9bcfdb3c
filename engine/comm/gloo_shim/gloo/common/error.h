// See ../../README.md.
#pragma once

#include <stdexcept>
