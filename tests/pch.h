// The precompiled header of the test programs without libtorch.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/pch.h"
