package analyze

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/google/pprof/driver"
	"github.com/google/pprof/profile"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
)

// newEmptyProfileError returns the error for an empty profile of a type.
func newEmptyProfileError(kind string) error {
	return fmt.Errorf("the %s profile is empty: no recorded call matches", kind)
}

// servePprofPages serves pprof's web pages of a profile until ctx ends or the user presses Ctrl-C.
// address is HOST:PORT; an empty HOST is localhost.
func servePprofPages(ctx context.Context, p *profile.Profile, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if host == "" {
		host = "localhost" // not all interfaces: other machines must not reach the pages
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return message.WithHint(fmt.Errorf("--http %s: %w", address, err), "gpurec analyze pprof --http :0")
	}
	defer listener.Close()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	at := listener.Addr().String()
	return driver.PProf(&driver.Options{
		// The last argument is the name of the profile, which pprof passes to Fetch.
		Flagset: &pprofFlags{
			flag.NewFlagSet("pprof", flag.ContinueOnError),
			[]string{"-http=" + at, "-no_browser", "-symbolize=none", "recording"},
		},
		Fetch: pprofProfile{p},
		UI:    pprofUI{},
		HTTPServer: func(args *driver.HTTPServerArgs) error {
			message.Notef("serving pprof's web pages at http://%s/ui/; Ctrl-C stops", at)
			return serveUntilDone(ctx, listener, newPprofHandler(args))
		},
	})
}

// newPprofHandler returns a handler that serves pprof's pages below /ui/, the path of their links.
// On a loopback address it rejects requests with another host name. This stops DNS rebinding: a
// foreign web page cannot read the profile through a host name that resolves to this machine.
func newPprofHandler(args *driver.HTTPServerArgs) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/ui/", http.StripPrefix("/ui", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if page := args.Handlers[r.URL.Path]; page != nil {
			page.ServeHTTP(w, r)
			return
		}
		http.NotFound(w, r)
	})))
	mux.Handle("/", http.RedirectHandler("/ui/", http.StatusTemporaryRedirect))
	isLocal := net.ParseIP(args.Host).IsLoopback()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Host
		if host, _, err := net.SplitHostPort(name); err == nil {
			name = host
		}
		if ip := net.ParseIP(
			strings.Trim(name, "[]"),
		); isLocal && name != "localhost" &&
			(ip == nil || !ip.IsLoopback()) {
			http.Error(w, "this address serves requests to localhost only", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// serveUntilDone serves pages until ctx ends. Open requests then have one second to finish.
func serveUntilDone(ctx context.Context, listener net.Listener, pages http.Handler) error {
	server := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve pprof's web pages: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := server.Shutdown(last); errors.Is(err, context.DeadlineExceeded) {
		server.Close()
	}
	<-done
	return nil
}

// pprofProfile implements driver.Fetcher: it returns the profile p for every name.
type pprofProfile struct{ p *profile.Profile }

func (p pprofProfile) Fetch(string, time.Duration, time.Duration) (*profile.Profile, string, error) {
	return p.p, "", nil
}

// pprofUI implements driver.UI: it prints pprof's errors as gpurec warnings.
type pprofUI struct{}

func (pprofUI) ReadLine(string) (string, error) { return "", errors.New("no terminal") }
func (pprofUI) Print(...any)                    {}
func (pprofUI) PrintErr(args ...any) {
	message.Warningf("pprof: %s", strings.TrimSpace(fmt.Sprint(args...)))
}
func (pprofUI) IsTerminal() bool                    { return false }
func (pprofUI) WantBrowser() bool                   { return false }
func (pprofUI) SetAutoComplete(func(string) string) {}

// pprofFlags implements driver.FlagSet: it parses args instead of the command line of gpurec.
type pprofFlags struct {
	*flag.FlagSet
	args []string
}

func (f *pprofFlags) ExtraUsage() string   { return "" }
func (f *pprofFlags) AddExtraUsage(string) {}
func (f *pprofFlags) StringList(name, value, usage string) *[]*string {
	return &[]*string{f.String(name, value, usage)}
}

func (f *pprofFlags) Parse(func()) []string {
	if err := f.FlagSet.Parse(f.args); err != nil {
		return nil
	}
	return f.Args()
}
