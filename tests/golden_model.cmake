fathom_e2e(golden_model_test DEPS base LABELS golden)
add_dependencies(golden_model_test fathom)
