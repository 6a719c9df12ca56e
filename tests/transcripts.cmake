fathom_e2e(transcripts_test DEPS base)
add_dependencies(transcripts_test fathom)
