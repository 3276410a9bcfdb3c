// The precompiled header of the test programs of the engine.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <thread>

#include "engine/torch_pch.h"
