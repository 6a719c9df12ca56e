// A real Ceph cluster for a test program: one monitor and six OSDs on loopback, ports chosen by the
// test, everything in one temporary folder. Its daemons are children that die with the thread that
// started the cluster, however that ends; destroying the cluster kills them and removes the folder.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fathom::testing {

class CephCluster {
  public:
    struct Options {
        bool bluestore = false;  // on files, and a manager, as scrubbing needs; else in memory
    };
    static constexpr int kOsds = 6;
    static constexpr const char* kPool = "blocks";             // k=4, m=2, one stripe a block
    static constexpr const char* kSmallPool = "small_blocks";  // the same for blocks of 16 KiB
    static constexpr const char* kIndexPool = "lists";         // three copies

    // Empty when it is up, else what went wrong.
    std::string start(const Options& options);
    CephCluster() = default;
    ~CephCluster();
    CephCluster(const CephCluster&) = delete;
    CephCluster& operator=(const CephCluster&) = delete;

    static bool installed();
    std::string conf() const { return folder_ + "/ceph.conf"; }
    std::string log(const std::string& daemon) const { return folder_ + "/" + daemon + ".log"; }

    // `ceph WORDS`; its output, or what went wrong behind "failed: ".
    std::string ceph(const std::vector<std::string>& words) const;
    std::string rados(const std::vector<std::string>& words) const;  // `rados WORDS`
    void kill_osd(int osd);
    void start_osd(int osd);
    void stop_monitor();      // it answers nothing any more …
    void continue_monitor();  // … until now
    // From some time later on the pools are full, or are not.
    void set_full(bool full) const;
    // Waits until the monitor knows that so many OSDs are up; false after some time.
    bool await_osds(int up) const;
    std::string osd_folder(int osd) const { return folder_ + "/osd" + std::to_string(osd); }

  private:
    std::string write_conf(const Options& options);
    std::string start_monitor();
    std::string make_osd(int osd);
    std::string make_pools();
    void launch(const std::string& name, const std::vector<std::string>& words);
    void end(const std::string& name);

    std::string folder_, fsid_;
    int port_ = 0;
    std::map<std::string, pid_t> daemons_;
};

}  // namespace fathom::testing
