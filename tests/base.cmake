fathom_e2e(golden_formats_test DEPS model base)
