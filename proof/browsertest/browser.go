// Package browsertest tests package dashboard in Chromium. browsertest is a separate module, so
// that the library does not depend on chromedp.
package browsertest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/chromedp/chromedp"
)

// ErrNoBrowser says how to get Chromium.
var ErrNoBrowser = errors.New("there is no Chromium: run make chromium, install Debian's package chromium, or name the program in OUTBOX_TEST_CHROMIUM")

// Find returns Chromium's program: OUTBOX_TEST_CHROMIUM, or a program in PATH.
func Find() (string, error) {
	if program := os.Getenv("OUTBOX_TEST_CHROMIUM"); program != "" {
		return program, nil
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if program, err := exec.LookPath(name); err == nil {
			return filepath.Abs(program)
		}
	}
	return "", ErrNoBrowser
}

// Start starts a browser without a window. [chromedp.NewContext] makes the tabs of the browser.
func Start(ctx context.Context) (context.Context, context.CancelFunc, error) {
	program, err := Find()
	if err != nil {
		return nil, nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program),
		chromedp.Flag("lang", "en"), chromedp.Flag("hide-scrollbars", false))
	if os.Geteuid() == 0 { // Chromium's sandbox refuses root
		options = append(options, chromedp.NoSandbox)
	}
	allocator, endAllocator := chromedp.NewExecAllocator(ctx, options...)
	browser, endBrowser := chromedp.NewContext(allocator)
	end := func() { endBrowser(); endAllocator() }
	if err := chromedp.Do(browser); err != nil {
		end()
		return nil, nil, err
	}
	return browser, end, nil
}
