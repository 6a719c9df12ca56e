// Names for people and logs: unguessable and unique, never an input of anything computed. And
// seeds.
#pragma once

#include <cstdint>
#include <string>

namespace fathom {

std::string random_uuid();    // UUID version 4 in its text form
std::uint64_t random_seed();  // 63 bits, for a request that gives none

}  // namespace fathom
