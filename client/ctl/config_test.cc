#include "client/ctl/config.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/ctl/connection.h"
#include "common/base/files.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr char kPath[] = "/etc/ctl/config.json";
constexpr char kText[] = R"({
  "contexts": {
    "local": {},
    "prod": {
      "coordinator": "host:7070",
      "tls_authorities": "/ca.pem",
      "tls_certificate": "alice.pem",
      "tls_key": "keys/../alice.key",
      "token_file": "token"
    }
  },
  "current": "prod"
}
)";

// The value of an environment variable while this lives; null: not set.
class Environment {
 public:
  Environment(const std::string& name, const char* value) : name_(name) {
    value == nullptr ? unsetenv(name.c_str()) : setenv(name.c_str(), value, /*overwrite=*/1);
  }
  ~Environment() { unsetenv(name_.c_str()); }

 private:
  const std::string name_;
};

TEST(ParseConfig, ReadsWhatRenderConfigWrites) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Config config, ParseConfig(kText, kPath));
  EXPECT_EQ(config.current, "prod");
  EXPECT_EQ(config.contexts.at("prod").tls.key, "keys/../alice.key");
  EXPECT_EQ(config.contexts.at("local").coordinator, "");
  EXPECT_EQ(RenderConfig(config), kText);
  EXPECT_EQ(RenderConfig(Config()), "{\n  \"contexts\": {}\n}\n");
}

TEST(ParseConfig, NamesFileAndKeyOfWhatIsWrong) {
  struct Case {
    const char* text;
    const char* message;
  };
  for (const Case& wrong : std::vector<Case>{
           {"{\n  \"current\": }", "/etc/ctl/config.json:2:14: syntax error"},
           {"", "/etc/ctl/config.json:1:1: "},
           {"[]", "/etc/ctl/config.json: is of type array; expected an object"},
           {R"({"curent": "a"})", "curent: unknown key; expected current, contexts"},
           {R"({"current": 3})", "current: is of type number; expected a string"},
           {R"({"current": "a\nb"})", "current: is 'a\\nb'; expected one line of text"},
           {R"({"contexts": []})", "contexts: is of type array; expected an object"},
           {R"({"contexts": {"a": "host:1"}})", "contexts.a: is of type string; expected an obj"},
           {R"({"contexts": {"a b": {}}})", "contexts: 'a b' is no name of a context"},
           {R"({"contexts": {"a": {"tls_cert": "x"}}})",
            "contexts.a.tls_cert: unknown key; expected coordinator, tls_certificate, tls_key, "
            "tls_authorities, token_file"},
           {R"({"contexts": {"a": {"coordinator": null}}})",
            "contexts.a.coordinator: is of type null; expected a string"},
       }) {
    EXPECT_THAT(ParseConfig(wrong.text, kPath),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(kPath), HasSubstr(wrong.message))))
        << wrong.text;
  }
}

TEST(FindContext, TakesRelativePathsFromTheFoldersOfTheFile) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Config config, ParseConfig(kText, kPath));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Connection prod, FindContext(config, kPath, "prod"));
  EXPECT_EQ(prod.coordinator, "host:7070");
  EXPECT_EQ(prod.tls.certificate, "/etc/ctl/alice.pem");
  EXPECT_EQ(prod.tls.key, "/etc/ctl/alice.key");
  EXPECT_EQ(prod.tls.authorities, "/ca.pem");
  EXPECT_EQ(prod.tls.token, "/etc/ctl/token");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Connection local, FindContext(config, kPath, "local"));
  EXPECT_TRUE(local.tls.empty());
}

TEST(FindContext, ListsThoseThatThereAre) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Config config, ParseConfig(kText, kPath));
  EXPECT_THAT(FindContext(config, kPath, "prd"),
              StatusIs(absl::StatusCode::kNotFound, "/etc/ctl/config.json: contexts: there is no "
                                                    "'prd'; there are: local, prod"));
}

TEST(CheckContextName, TakesWhatNeedsNoQuotes) {
  EXPECT_THAT(CheckContextName("Prod-1.eu_west"), IsOk());
  for (const std::string& wrong : {std::string(), std::string("a b"), std::string("a/b"),
                                   std::string("\xC3\xA9"), std::string(64, 'a')}) {
    EXPECT_THAT(CheckContextName(wrong), StatusIs(absl::StatusCode::kInvalidArgument)) << wrong;
  }
}

TEST(ConfigPath, PrefersTheFileThenTheFolderThenHome) {
  const Environment home("HOME", "/home/ada");
  {
    const Environment folder("XDG_CONFIG_HOME", "/xdg");
    {
      const Environment file("LOCKSTEP_CONFIG", "/mine.json");
      EXPECT_EQ(ConfigPath(), "/mine.json");
    }
    EXPECT_EQ(ConfigPath(), "/xdg/lockstep/config.json");
  }
  const Environment empty("XDG_CONFIG_HOME", "");
  EXPECT_EQ(ConfigPath(), "/home/ada/.config/lockstep/config.json");
  const Environment none("HOME", nullptr);
  EXPECT_EQ(ConfigPath(), "");
}

class ConfigFile : public testing::Test {
 protected:
  static std::string Folder() { return absl::StrCat(testing::TempDir(), "/config", getpid()); }
  ConfigFile() { std::filesystem::remove_all(Folder()); }
};

TEST_F(ConfigFile, IsWrittenForNobodyElseToRead) {
  const std::string path = Folder() + "/new/config.json";
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Config config, ParseConfig(kText, path));
  ASSERT_THAT(WriteConfig(path, config), IsOk());
  struct stat file = {};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_EQ(*ReadFile(path), kText);
  const mode_t mask = umask(022);
  umask(mask);
  EXPECT_NE(mask, 077u);  // it is as it was
}

TEST_F(ConfigFile, IsWrittenThroughALink) {
  std::filesystem::create_directories(Folder());
  const std::string path = Folder() + "/config.json";
  const std::string target = Folder() + "/target.json";
  ASSERT_THAT(WriteFile(target, "{}"), IsOk());
  std::filesystem::create_symlink(target, path);
  ASSERT_THAT(WriteConfig(path, {.current = "a"}), IsOk());
  EXPECT_TRUE(std::filesystem::is_symlink(path));
  EXPECT_THAT(*ReadFile(target), HasSubstr("\"current\": \"a\""));
}

TEST_F(ConfigFile, IsEmptyWhereThereIsNone) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Config config, ReadConfig(Folder() + "/none.json"));
  EXPECT_THAT(config.contexts, IsEmpty());
  EXPECT_THAT(ReadConfig(""), IsOk());
  EXPECT_THAT(WriteConfig("", {}), StatusIs(absl::StatusCode::kFailedPrecondition));
  std::filesystem::create_directories(Folder());
  EXPECT_THAT(WriteConfig(Folder() + "/", {}), testing::Not(IsOk()));
}

// Where each setting may be said, by option.
TEST(FillIn, TakesTheCommandLineThenTheEnvironmentThenTheContextThenTheDefault) {
  const Environment from_environment("LOCKSTEP_TLS_KEY", "environment.key");
  const Environment also_named("LOCKSTEP_TOKEN_FILE", "environment.token");
  Connection connection;
  CLI::App app;
  AddConnectionOptions(&app, &connection);
  app.parse("--token-file named.token");
  FillIn(app,
         {.tls = {.certificate = "saved.pem",
                  .key = "saved.key",
                  .authorities = "ca.pem",
                  .token = "saved.token"}},
         &connection);
  EXPECT_EQ(connection.tls.token, "named.token");
  EXPECT_EQ(connection.tls.key, "environment.key");
  EXPECT_EQ(connection.tls.certificate, "saved.pem");
  EXPECT_EQ(connection.tls.authorities, "ca.pem");
  EXPECT_EQ(connection.coordinator, "127.0.0.1:7070");
}

TEST(FillIn, PrefersTheContextToTheDefault) {
  Connection connection;
  CLI::App app;
  AddConnectionOptions(&app, &connection);
  app.parse("");
  FillIn(app, {.coordinator = "saved:1"}, &connection);
  EXPECT_EQ(connection.coordinator, "saved:1");
}

TEST(ConnectionSettings, HaveAnOptionEach) {
  Connection connection;
  CLI::App app;
  AddConnectionOptions(&app, &connection);
  std::size_t options = 0;
  for (const CLI::Option* option : app.get_options()) options += option->get_envname() != "";
  EXPECT_EQ(options, ConnectionSettings().size());
  for (const ConnectionSetting& setting : ConnectionSettings()) {
    EXPECT_NE(app.get_option_no_throw(setting.option()), nullptr) << setting.key;
  }
}

}  // namespace
}  // namespace lockstep
