#include "bench/codec_text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/random.h"

namespace fathom::bench {
namespace {

constexpr std::size_t kStretchBytes = 4096;

// Common words, the commonest first.
constexpr std::string_view kChineseWords =
    "的 一 是 在 了 不 和 有 我 他 这 中 人 上 来 到 大 为 地 个 用 们 说 就 时 要 出 会 可 也 你 "
    "对 生 能 而 子 那 得 于 着 "
    "我们 可以 一个 没有 他们 自己 问题 因为 如果 所以 但是 这个 什么 时候 已经 进行 工作 使用 "
    "系统 数据 模型 通过 需要 发展 "
    "社会 国家 中国 经济 技术 研究 方法 结果 不同 重要 其中 以及 之间 可能 由于 根据 主要 时间 "
    "开始 世界 学习 语言 信息 服务 "
    "管理 企业 市场 生活 教育 文化 历史 科学 计算 网络 程序 代码 函数 变量 文件 目录 内存 线程 "
    "缓存 请求 响应 错误 测试 运行 "
    "性能 优化 参数 配置 用户 接口 协议 版本 更新 支持 提供 包括 实现 设计 结构 功能 分析 处理 "
    "过程 环境 条件 情况 关系 影响 "
    "目前 今年 去年 北京 上海 城市 农村 政府 部门 公司 产品 价格 投资 金融 银行 法律 安全 健康 "
    "医院 医生 学校 老师 学生 孩子 "
    "父母 朋友 家庭 爱情 故事 电影 音乐 艺术 作品 小说 诗歌 春天 夏天 秋天 冬天 天气 下雨 阳光 "
    "月亮 星星 大海 河流 山水 "
    "人工智能 机器学习 神经网络 自然语言 深度学习 大数据 云计算 互联网 操作系统 数据库 分布式 "
    "服务器 客户端 开源 "
    "并且 或者 虽然 然而 因此 于是 还是 只要 只有 无论 尽管 甚至 尤其 特别 非常 十分 比较 更加 "
    "最后 首先 其次 同时 然后 "
    "看到 听到 知道 觉得 认为 希望 相信 决定 告诉 发现 出现 成为 得到 进入 离开 回来 起来 下来 "
    "过去 现在 将来 永远 "
    "蝴蝶 麒麟 鹦鹉 琥珀 踌躇 徘徊 憧憬 氤氲 斑驳 旖旎 踽踽 龃龉 饕餮 魑魅 囹圄 耄耋";
constexpr std::string_view kChineseMarks = "，，，，。。、：；！？";

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find_first_of(" \n", at), text.size());
        if (end > at) words.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return words;
}

std::string read_file(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
}

// A document's or comments' lines, without the marks of either.
void add_prose(std::string_view file, bool is_code, std::string& prose) {
    for (std::size_t at = 0; at < file.size();) {
        const std::size_t end = std::min(file.find('\n', at), file.size());
        std::string_view line = file.substr(at, end - at);
        at = end + 1;
        if (is_code) {
            const std::size_t comment = line.find("// ");
            if (comment == std::string_view::npos) continue;
            line.remove_prefix(comment + 3);
        }
        prose += line;
        prose += '\n';
    }
}

struct Sources {
    std::string code;
    std::string prose;
};

Result<Sources> read_sources(const std::string& tree) {
    std::vector<std::filesystem::path> paths;
    for (const char* folder : {"src", "tests", "docs"}) {
        std::error_code error;
        std::filesystem::recursive_directory_iterator entries(tree + "/" + folder, error);
        if (error) return invalid_argument("{}/{}: {}", tree, folder, error.message());
        for (const auto& entry : entries)
            if (entry.is_regular_file()) paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    Sources sources;
    for (const std::filesystem::path& path : paths) {
        const bool is_code = path.extension() == ".cc" || path.extension() == ".h";
        if (!is_code && path.extension() != ".md") continue;
        const std::string file = read_file(path);
        if (is_code) sources.code += file;
        add_prose(file, is_code, sources.prose);
    }
    if (sources.code.empty() || sources.prose.empty())
        return invalid_argument("{}: no sources", tree);
    return sources;
}

class Writer {
  public:
    explicit Writer(const Sources& sources)
        : code_(sources.code), prose_(words_of(sources.prose)), chinese_(words_of(kChineseWords)) {}

    void english(std::string& out) {
        const std::size_t end = out.size() + kStretchBytes;
        for (int line = 0; out.size() < end; ++line) {
            out += prose_[random_.next_below(prose_.size())];
            out += line % 97 == 96 ? "\n\n" : " ";
        }
        out += '\n';
    }

    void chinese(std::string& out) {
        const std::size_t end = out.size() + kStretchBytes;
        while (out.size() < end) {
            for (std::uint64_t left = 2 + random_.next_below(8); left > 0; --left) {
                // The smaller of two draws: the first words are commoner.
                const std::uint64_t a = random_.next_below(chinese_.size());
                out += chinese_[std::min(a, random_.next_below(chinese_.size()))];
            }
            out += kChineseMarks.substr(3 * random_.next_below(kChineseMarks.size() / 3), 3);
            if (random_.next_below(25) == 0) out += std::to_string(random_.next_below(10'000));
            if (random_.next_below(40) == 0) out += "\n\n";
        }
        out += '\n';
    }

    void code(std::string& out) {
        if (code_at_ >= code_.size()) code_at_ = 0;
        const std::size_t end = std::min(code_.find('\n', code_at_ + kStretchBytes), code_.size());
        out += code_.substr(code_at_, end - code_at_);
        out += '\n';
        code_at_ = end + 1;
    }

  private:
    std::string_view code_;
    std::size_t code_at_ = 0;
    std::vector<std::string_view> prose_;
    std::vector<std::string_view> chinese_;
    RandomStream random_{1};
};

}  // namespace

Result<std::string> mixed_text(const std::string& tree, std::size_t bytes) {
    FATHOM_ASSIGN(const Sources sources, read_sources(tree));
    Writer writer(sources);
    std::string text;
    while (text.size() < bytes) {
        writer.english(text);
        writer.chinese(text);
        writer.code(text);
    }
    return text;
}

}  // namespace fathom::bench
