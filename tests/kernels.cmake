fathom_e2e(golden_kernels_test DEPS base kernels model)
