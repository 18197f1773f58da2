// What ThreadSanitizer shall not report: Debian's Abseil is not instrumented, so
// the sanitizer does not see that its status's reference count orders the last
// use of the text before the delete. Linked into every test; read under TSan only.
extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::debian3::Status::Unref\n";
}
