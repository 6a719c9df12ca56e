fathom_e2e(pool_replay_test DEPS pool base)
fathom_e2e(pool_e2e_test DEPS gateway base)
add_dependencies(pool_e2e_test fathom)
fathom_e2e(pool_faults_test DEPS pool_testing pool base LABELS slow)
