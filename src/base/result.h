// Errors that can happen are values. A Status is a code and one sentence for the person who can act
// on it: it names the field (or file), the value found and the limit or expectation. Result<T> is
// either a T or a Status; both are [[nodiscard]]. Programmer errors are CHECK (check.h), never a
// Status.
//
// Cancellation is its own code and is always passed on, never swallowed or retried.
//
//   Result<Config> load(path);
//   FATHOM_ASSIGN(Config config, load(path));     // returns the Status to the caller on failure
//   FATHOM_RETURN_IF_ERROR(check(config));
#pragma once

#include <fmt/core.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace fathom {

enum class StatusCode {
    ok,
    invalid_argument,    // the request or file is wrong; repeating it will fail again
    not_found,           // a named file, tensor or route does not exist
    data_loss,           // stored bytes are damaged or truncated
    resource_exhausted,  // a queue, a limit or memory is full; may be repeated later
    unavailable,         // the other side is not there (yet)
    deadline_exceeded,   // a bounded wait ran out
    cancelled,           // the caller asked to stop
    permission_denied,   // missing or wrong key
    unsupported,         // valid, but this build or machine cannot do it
    internal,            // a bug on our side that did not warrant an abort
};

// The name as it appears in logs and JSON reports, e.g. "invalid_argument".
const char* status_code_name(StatusCode code);

class [[nodiscard]] Status {
  public:
    Status() = default;  // ok
    Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

    bool ok() const { return code_ == StatusCode::ok; }
    StatusCode code() const { return code_; }
    const std::string& message() const { return message_; }
    std::string to_string() const;  // "invalid_argument: message", or "ok"

    // The same error with "context: " in front of its message, for callers that know the file or
    // field.
    Status with_context(std::string_view context) const;

    friend bool operator==(const Status&, const Status&) = default;

  private:
    StatusCode code_ = StatusCode::ok;
    std::string message_;
};

// Builds a failed Status from a format string: error(StatusCode::not_found, "tensor {}", name).
template <typename... Args>
Status error(StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
    return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

template <typename... Args>
Status invalid_argument(fmt::format_string<Args...> format, Args&&... args) {
    return Status(StatusCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...));
}

// value() on a failed Result is a programmer error (it throws, and nothing catches it): test ok()
// first.
template <typename T>
class [[nodiscard]] Result : public tl::expected<T, Status> {
  public:
    using Base = tl::expected<T, Status>;
    using Base::Base;
    // NOLINTNEXTLINE(google-explicit-constructor): a function returns either a value or a Status
    Result(Status status) : Base(tl::unexpected<Status>(std::move(status))) {}

    bool ok() const { return this->has_value(); }
    const Status& status() const {
        static const Status kOk;
        return ok() ? kOk : this->error();
    }
};

}  // namespace fathom

#define FATHOM_CONCAT_INNER(a, b) a##b
#define FATHOM_CONCAT(a, b) FATHOM_CONCAT_INNER(a, b)

// Evaluates an expression of type Status and returns it from the enclosing function when it failed.
#define FATHOM_RETURN_IF_ERROR(expression)                                          \
    do {                                                                            \
        if (::fathom::Status status_ = (expression); !status_.ok()) return status_; \
    } while (false)

// FATHOM_ASSIGN(Type name, expression): unwraps a Result or returns its Status.
#define FATHOM_ASSIGN(declaration, expression) \
    FATHOM_ASSIGN_INNER(FATHOM_CONCAT(result_, __LINE__), declaration, expression)
#define FATHOM_ASSIGN_INNER(temporary, declaration, expression) \
    auto temporary = (expression);                              \
    if (!(temporary).ok()) return (temporary).status();         \
    declaration = std::move(*(temporary))
