// Names for people and logs: unguessable, unique, and never an input of anything computed.
#pragma once

#include <string>

namespace fathom {

std::string random_uuid();  // UUID version 4 in its text form

}  // namespace fathom
