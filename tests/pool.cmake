fathom_e2e(pool_replay_test DEPS pool base)
