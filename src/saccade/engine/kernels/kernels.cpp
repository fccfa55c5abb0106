// The kernels of one instruction set, KERNELS: library.py compiles this file once for each, with the compiler's flags for it.
#include "attention.h"
#include "product.h"
#include "rows.h"

#define TEXT_OF(name) #name
#define NAME_OF(name) TEXT_OF(name)
#define TABLE_OF(name) name##_kernels
#define TABLE(name) TABLE_OF(name)

extern const Kernels TABLE(KERNELS) = {NAME_OF(KERNELS), product, quantize, finish, attend, gate};
