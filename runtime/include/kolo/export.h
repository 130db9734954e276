// KOLO_API marks what the shared libraries export; everything else is hidden.
#pragma once

#define KOLO_API __attribute__((visibility("default")))
