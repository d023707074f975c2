# The Homebrew formula of a release. `make dist` fills in the version and the checksums of the archives.
class Belfry < Formula
  desc "Bulk notifications on PostgreSQL: one job at a time, resumable, stoppable"
  homepage "https://github.com/belfryhq/belfry"
  version "@version@"
  license "MIT"

  on_macos do
    on_arm do
      url "https://github.com/belfryhq/belfry/releases/download/v@version@/belfry_@version@_darwin_arm64.tar.gz"
      sha256 "@darwin_arm64@"
    end
    on_intel do
      url "https://github.com/belfryhq/belfry/releases/download/v@version@/belfry_@version@_darwin_amd64.tar.gz"
      sha256 "@darwin_amd64@"
    end
  end

  on_linux do
    on_arm do
      url "https://github.com/belfryhq/belfry/releases/download/v@version@/belfry_@version@_linux_arm64.tar.gz"
      sha256 "@linux_arm64@"
    end
    on_intel do
      url "https://github.com/belfryhq/belfry/releases/download/v@version@/belfry_@version@_linux_amd64.tar.gz"
      sha256 "@linux_amd64@"
    end
  end

  def install
    bin.install "belfry"
    man1.install Dir["man/man1/*.1"]
    bash_completion.install "completion/belfry.bash" => "belfry"
    zsh_completion.install "completion/_belfry"
    fish_completion.install "completion/belfry.fish"
    pkgshare.install "config.yaml"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/belfry version")
  end
end
