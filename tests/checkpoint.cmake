fathom_e2e(checkpoint_test DEPS model base)
fathom_e2e(bad_checkpoints_test DEPS model base)

find_package(ZLIB REQUIRED)
fathom_e2e(official_inventory_test DEPS model base)
target_link_libraries(official_inventory_test PRIVATE ZLIB::ZLIB)
