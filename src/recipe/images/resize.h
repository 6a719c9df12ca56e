// Bringing a picture to the size that the vision encoder takes.
#pragma once

#include "recipe/images/picture.h"

namespace fathom {

// The picture in a frame of this size: as large as fits in its shape, by a cubic filter
// (Catmull-Rom, widened where it shrinks), in the middle, with grey around it. Memory beside both
// pictures: 12 bytes for each row of the source and each column of the frame.
Picture fit_picture(const Picture& picture, ImageSize frame);

}  // namespace fathom
