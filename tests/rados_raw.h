// Objects of a pool behind the back of the store.
#pragma once

#include <gtest/gtest.h>
#include <rados/librados.h>

#include <cstdint>
#include <string>
#include <vector>

namespace fathom::testing {

class RawObjects {
  public:
    RawObjects(const std::string& conf, const char* pool, const std::string& rados_namespace) {
        EXPECT_EQ(rados_create(&cluster_, "admin"), 0);
        EXPECT_EQ(rados_conf_read_file(cluster_, conf.c_str()), 0);
        EXPECT_EQ(rados_connect(cluster_), 0);
        EXPECT_EQ(rados_ioctx_create(cluster_, pool, &io_), 0);
        rados_ioctx_set_namespace(io_, rados_namespace.c_str());
    }
    ~RawObjects() {
        rados_ioctx_destroy(io_);
        rados_shutdown(cluster_);
    }
    RawObjects(const RawObjects&) = delete;
    RawObjects& operator=(const RawObjects&) = delete;

    std::vector<char> read(const std::string& name) const {
        std::vector<char> bytes(std::size_t{1} << 20);
        const int got = rados_read(io_, name.c_str(), bytes.data(), bytes.size(), 0);
        EXPECT_GE(got, 0) << name;
        bytes.resize(static_cast<std::size_t>(got < 0 ? 0 : got));
        return bytes;
    }
    void write(const std::string& name, const std::vector<char>& bytes) const {
        EXPECT_EQ(rados_write_full(io_, name.c_str(), bytes.data(), bytes.size()), 0) << name;
    }
    std::vector<std::string> list() const {
        std::vector<std::string> names;
        rados_list_ctx_t context = nullptr;
        EXPECT_EQ(rados_nobjects_list_open(io_, &context), 0);
        const char* name = nullptr;
        while (rados_nobjects_list_next(context, &name, nullptr, nullptr) == 0)
            names.emplace_back(name);
        rados_nobjects_list_close(context);
        return names;
    }

  private:
    rados_t cluster_ = nullptr;
    rados_ioctx_t io_ = nullptr;
};

}  // namespace fathom::testing
