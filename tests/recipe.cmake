fathom_e2e(recipe_golden_test DEPS base recipe)
fathom_e2e(tiny_tokenizer_test DEPS base recipe)
fathom_e2e(official_tokenizer_test DEPS base recipe)
fathom_e2e(recipe_vectors_test DEPS base recipe)
