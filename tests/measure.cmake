fathom_e2e(measure_test DEPS base)
add_dependencies(measure_test fathom)
