// The target of a program that holds one. Private to the room.
#pragma once

#include "shardcheck/fuzz/target.h"

namespace shardcheck::fuzz {

const Target& the_target();

}  // namespace shardcheck::fuzz
