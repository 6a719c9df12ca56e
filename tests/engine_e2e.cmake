fathom_e2e(engine_e2e_test DEPS base kernels model engine recipe)
