fathom_e2e(verify_budget_golden_test DEPS policy base)
