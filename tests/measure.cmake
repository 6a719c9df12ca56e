fathom_e2e(measure_test DEPS gateway base)
add_dependencies(measure_test fathom)
