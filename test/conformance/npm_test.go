// Copyright The Tidewaiter Authors.
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// oldestNode is the first major version that npm and most programs are known to run on, newestNode the first that
	// all do.
	oldestNode, newestNode = 20, 22
	// installTimeout bounds the download of some 200 packages.
	installTimeout = 8 * time.Minute
)

// errUnavailable says that this machine cannot have the programs; anything else that goes wrong is a defect.
var errUnavailable = errors.New("the npm packages cannot be had here")

// unreachable are npm's codes for a registry that is not reached, or not allowed to be reached.
var unreachable = []string{
	"E403", "E407", "E502", "E503", "E504", "EAI_AGAIN", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTUNREACH",
	"ENETUNREACH", "ENOTCACHED", "ENOTFOUND", "ERR_SOCKET_TIMEOUT", "ETIMEDOUT",
}

var npmCode = regexp.MustCompile(`(?m)^npm (?:error|ERR!) code (\S+)`)

// needPackages returns the folder of the installed programs, and a node that runs all of them. Where they cannot be had
// the test is skipped with the reason; under CI=true it fails.
func needPackages(t *testing.T) (folder, node string) {
	t.Helper()
	caches, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	folder, err = install(t.Context(), filepath.Join(caches, "tidewaiter", "npm"))
	if err == nil {
		node, err = suiteNode(t.Context(), folder)
	}
	if errors.Is(err, errUnavailable) && os.Getenv("CI") != "true" {
		t.Skipf("not run: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return folder, node
}

// suiteNode returns a node that the conformance suite runs on: the one of this machine, or one of the packages.
func suiteNode(ctx context.Context, folder string) (string, error) {
	here, major, err := nodeVersion(ctx)
	if err != nil || major >= newestNode {
		return "node", err
	}
	packaged, err := filepath.Glob(filepath.Join(folder, "node_modules", "node-linux-*", "bin", "node"))
	if err != nil {
		return "", err
	}
	if len(packaged) != 1 {
		return "", fmt.Errorf("%w: node is %s, and %d or later is needed: npm has none for %s/%s", errUnavailable, here, newestNode, runtime.GOOS, runtime.GOARCH)
	}
	return packaged[0], nil
}

// install returns the folder in cache that holds what package-lock.json names, after filling it if it is not there.
func install(ctx context.Context, cache string) (string, error) {
	if err := checkNode(ctx); err != nil {
		return "", err
	}
	lockfile, err := os.ReadFile("package-lock.json")
	if err != nil {
		return "", fmt.Errorf("read the lock file: %w", err)
	}
	sum := sha256.Sum256(lockfile)
	folder := filepath.Join(cache, hex.EncodeToString(sum[:8]))
	unlock, err := lock(cache, folder+".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	// A folder has its final name only when it is complete.
	work, err := os.MkdirTemp(cache, "install-")
	if err != nil {
		return "", fmt.Errorf("make a folder to install into: %w", err)
	}
	defer os.RemoveAll(work)
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(work, name), data, 0o600); err != nil {
			return "", fmt.Errorf("copy %s: %w", name, err)
		}
	}
	if err := npmCI(ctx, work); err != nil {
		return "", err
	}
	if err := os.Rename(work, folder); err != nil {
		return "", fmt.Errorf("keep the packages: %w", err)
	}
	return folder, nil
}

// checkNode tells whether node and npm are here.
func checkNode(ctx context.Context) error {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: there is no %s", errUnavailable, program)
		}
	}
	version, major, err := nodeVersion(ctx)
	if err == nil && major < oldestNode {
		err = fmt.Errorf("%w: node is %s, and %d or later is needed", errUnavailable, version, oldestNode)
	}
	return err
}

// nodeVersion asks the node of this machine.
func nodeVersion(ctx context.Context) (version string, major int, err error) {
	out, err := exec.CommandContext(ctx, "node", "--version").Output()
	if err != nil {
		return "", 0, fmt.Errorf("ask node for its version: %w", err)
	}
	version = strings.TrimSpace(string(out))
	digits, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if major, err = strconv.Atoi(digits); err != nil {
		return "", 0, fmt.Errorf("the version of node, %q: %w", version, err)
	}
	return version, major, nil
}

// lock keeps other test runs out of the cache until it is released.
func lock(cache, path string) (unlock func(), err error) {
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return nil, fmt.Errorf("make the cache: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), file.Close())
	}
	return func() { file.Close() }, nil
}

// npmCI installs exactly what the lock file names. Packages run no scripts of their own, and the inspector, which asks
// for a newer node than its command line needs, is not refused for it.
func npmCI(ctx context.Context, folder string) error {
	ctx, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	cmd := command(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--engine-strict=false", "--no-update-notifier",
		"--fetch-retries=2", "--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=5000")
	cmd.Dir = folder
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	code := ""
	if found := npmCode.FindSubmatch(out); found != nil {
		code = string(found[1])
	}
	if slices.Contains(unreachable, code) {
		return fmt.Errorf("%w: npm ci: %s", errUnavailable, code)
	}
	return fmt.Errorf("npm ci: %w\n%s", err, out)
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	t.Run("no node", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := install(t.Context(), t.TempDir()); !errors.Is(err, errUnavailable) || !strings.Contains(err.Error(), "no node") {
			t.Errorf("install: got %v, want %v", err, errUnavailable)
		}
	})
	for name, tc := range map[string]struct {
		npm         string
		unavailable bool
		fails       bool
	}{
		"a registry that is not reached":       {npm: "echo 'npm error code ENOTFOUND' >&2; exit 1", unavailable: true, fails: true},
		"a package that is not what was named": {npm: "echo 'npm error code EINTEGRITY' >&2; exit 1", fails: true},
		"an installation that goes well":       {npm: "mkdir node_modules"},
	} {
		t.Run(name, func(t *testing.T) {
			programs, cache := t.TempDir(), t.TempDir()
			fake(t, programs, "node", "echo v20.0.0")
			fake(t, programs, "npm", tc.npm)
			t.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))
			folder, err := install(t.Context(), cache)
			if (err != nil) != tc.fails || errors.Is(err, errUnavailable) != tc.unavailable {
				t.Errorf("install: got %v, want an error: %t, of a machine that cannot: %t", err, tc.fails, tc.unavailable)
			}
			if tc.fails {
				// Half an installation would be taken for a whole one by the next run. Only the lock may stay.
				if left, _ := filepath.Glob(filepath.Join(cache, "*[0-9a-f]")); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
				return
			}
			fake(t, programs, "npm", "exit 1")
			if again, err := install(t.Context(), cache); err != nil || again != folder {
				t.Errorf("the second time: got %q, %v, want %q from the cache", again, err, folder)
			}
		})
	}
}

// fake writes a shell script in place of a program.
func fake(t *testing.T, folder, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

func TestTheLockFileNamesNoRegistry(t *testing.T) {
	t.Parallel()
	lockfile, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(lockfile), `"resolved"`) {
		t.Error(`package-lock.json says where packages come from; write it with "npm install --package-lock-only --omit-lockfile-registry-resolved"`)
	}
	if !strings.Contains(string(lockfile), `"integrity": "sha512-`) {
		t.Error("package-lock.json does not say what packages contain")
	}
}
