fathom_e2e(checkpoint_test DEPS model base)
