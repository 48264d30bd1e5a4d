//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpurec/gpurec/agent"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/cmd/gpurec/agentconfig"
	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/privilege"
)

// defaultConfigFile is read if it exists and --config is not given.
const defaultConfigFile = "/etc/gpurec/agent.yaml"

func newAgentCommand() *cobra.Command {
	var config, state string
	var check bool
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Record a node all the time, and keep what happened around incidents",
		Long: `agent records every process that uses CUDA into a ring of the last 10 minutes. When an
event fires, such as an Xid, a hang or a leak, it keeps what happened before and after. This
capture is a recording of its own, with the findings of "gpurec analyze rules". The agent
continues to record meanwhile.

All state is in one folder, /var/lib/gpurec by default. After a restart, also after
kill -9, the agent completes unfinished captures, and triggers can still use the ring of
the previous agent. The agent never exceeds its quotas: it deletes the oldest
captures first, and never the newest of a kind.

SIGTERM ends the agent: it completes captures and leaves the ring. SIGUSR1 is a manual
trigger, as "gpurec trigger" is.

The configuration is YAML: ` + defaultConfigFile + ` if it exists, or --config. Missing keys have
their defaults, and unknown keys are errors. docs/agent.md lists all keys.`,
		Example: `  sudo gpurec agent                                # with the defaults
  sudo gpurec agent --config agent.yaml --state /data/gpurec
  gpurec agent --config agent.yaml --check         # check the configuration, and exit
  sudo gpurec agent status                         # what the agent does
  sudo gpurec trigger --reason "step time doubled" # capture the last 10 minutes now
  gpurec analyze rules /var/lib/gpurec/captures/20260101T120000Z-oom-k3f1.parquet`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := readAgentConfig(config, state)
			if err != nil {
				return err
			}
			if check {
				message.Notef("the configuration is correct; %s", describeTriggers(&file.Agent))
				return nil
			}
			return runAgent(cmd.Context(), file)
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "read `FILE` (default: "+defaultConfigFile+" if it exists)")
	cmd.Flags().StringVar(&state, "state", "", "keep ring and captures in `FOLDER`, whatever the configuration says")
	cmd.Flags().BoolVar(&check, "check", false, "check the configuration, and exit")
	cmd.AddCommand(newAgentStatusCommand())
	return cmd
}

// readAgentConfig reads the configuration. state replaces that of the file, if it is not "".
func readAgentConfig(path, state string) (agentconfig.File, error) {
	file, err := agentconfig.Read(cmp.Or(path, defaultConfigFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && path == "":
		file = agentconfig.Default()
	case errors.Is(err, fs.ErrNotExist):
		return file, message.WithHint(err, "sudo gpurec agent")
	case err != nil:
		return file, &message.UsageError{
			Err:  err,
			Hint: "gpurec agent --check --config " + cmp.Or(path, defaultConfigFile),
		}
	}
	file.Agent.State = cmp.Or(state, file.Agent.State)
	return file, nil
}

// describeTriggers lists the triggers that fire.
func describeTriggers(c *agent.Config) string {
	var names []string
	for kind := range c.Triggers {
		names = append(names, string(kind))
	}
	slices.Sort(names)
	return "triggers: " + strings.Join(names, ", ")
}

// runAgent runs the agent until a signal ends it.
func runAgent(ctx context.Context, file agentconfig.File) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	manual := make(chan os.Signal, 4)
	signal.Notify(manual, syscall.SIGUSR1)
	defer signal.Stop(manual)
	opt := file.Record
	opt.Version, opt.CommandLine, opt.TableFolder = buildVersion(), os.Args, tableFolder()
	opt.Warn = func(text string) { message.Warningf("%s", text) }
	err := agent.Run(ctx, agent.Options{
		Config:      file.Agent,
		Record:      opt,
		IsSevereXid: catalog.IsSevereXid,
		Seal:        func(folder string) error { return runSeal(folder, "") },
		Manual:      manual,
		OnRefused:   noteRefused,
		Log:         func(text string) { message.Notef("%s", text) },
	})
	var denied *privilege.Error
	switch {
	case errors.Is(err, agent.ErrRunning):
		return message.WithHint(err, "gpurec agent status --socket "+file.Agent.SocketPath())
	case errors.As(err, &denied), errors.Is(err, fs.ErrPermission):
		return message.WithHint(err, "sudo "+strings.Join(os.Args, " "))
	}
	return err
}

func newAgentStatusCommand() *cobra.Command {
	var socket, output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what the running agent records, and its captures",
		Long: `status asks the running agent for its state: recorded processes, lost calls, triggers by
outcome, and captures. With --format json it prints everything that the agent answers.`,
		Example: `  sudo gpurec agent status
  sudo gpurec agent status --format json | jq .triggers`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return message.Usagef("gpurec agent status --help", "--format %s: must be text or json", output)
			}
			status, err := agent.ReadStatus(cmd.Context(), socket)
			if err != nil {
				return explainNoAgent(err)
			}
			if output == "json" {
				encoder := json.NewEncoder(os.Stdout)
				encoder.SetIndent("", "  ")
				return encoder.Encode(status)
			}
			printAgentStatus(&status)
			return nil
		},
	}
	addSocketFlag(cmd, &socket)
	cmd.Flags().StringVar(&output, "format", "text", "print as text or json")
	return cmd
}

// addSocketFlag adds the flag --socket.
func addSocketFlag(cmd *cobra.Command, socket *string) {
	c := agent.DefaultConfig()
	cmd.Flags().StringVar(socket, "socket", c.SocketPath(), "ask the agent at `PATH`")
}

// explainNoAgent adds advice to an error of asking the agent.
func explainNoAgent(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return message.WithHint(fmt.Errorf("no agent runs here: %w", err), "sudo gpurec agent")
	case errors.Is(err, fs.ErrPermission):
		return message.WithHint(err, "sudo "+strings.Join(os.Args, " "))
	}
	return err
}

// printAgentStatus prints the state of an agent as text.
func printAgentStatus(s *agent.Status) {
	fmt.Printf("recording for  %v, ring of %s in %s\n", time.Since(s.Since).Round(time.Second),
		units.FormatBytes(s.RingBytes), s.Output)
	fmt.Printf("calls          %s, %s lost\n", units.FormatCount(s.Calls), units.FormatCount(s.Lost))
	var names []string
	for _, p := range s.Processes {
		names = append(names, fmt.Sprintf("%d (%s)", p.Pid, p.Name))
	}
	fmt.Printf("processes      %s\n", cmp.Or(strings.Join(names, ", "), "none"))
	var counts []string
	for _, outcome := range triggerOutcomes {
		if n := s.Triggers[outcome]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	fmt.Printf("triggers       %s\n", cmp.Or(strings.Join(counts, ", "), "none"))
	fmt.Printf("captures       %d sealed (%s), %d in work, %d failed\n", s.Captures,
		units.FormatBytes(s.CaptureBytes), s.Sealing, s.SealFailed)
	fmt.Printf("own cost       %s memory, %v CPU time\n", units.FormatBytes(s.MemoryBytes),
		time.Duration(s.CPUNs).Round(time.Millisecond))
	for i := range s.Recent {
		t := &s.Recent[i]
		fmt.Printf("%s  %s  %s  %s\n", time.Unix(0, t.AtNs).Format(time.RFC3339), t.Kind, t.Outcome, t.Evidence)
	}
}

func newTriggerCommand() *cobra.Command {
	var socket, at string
	var request agent.Request
	cmd := &cobra.Command{
		Use:   "trigger",
		Short: "Ask the running agent to keep what happened",
		Long: `trigger makes the running agent capture the last 10 minutes, or the time around --at. The
time may be in the past, if the ring still has it. With the same --at on all nodes of a
job, the captures of all ranks cover the same time.

trigger prints the ID of the capture. The recording is ID.parquet in the agent's folder of
captures when --after is over. The exit status is 1 if the agent refuses.`,
		Example: `  sudo gpurec trigger
  sudo gpurec trigger --at 2026-01-01T12:00:00Z --before 2m --after 30s --job train-7
  srun --overlap sudo gpurec trigger --at "$(date -Is)"  # on all nodes of a job`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := parseTriggerTime(at, &request.At); err != nil {
				return err
			}
			if request.Before < 0 || request.After < 0 {
				return message.Usagef("gpurec trigger --help", "--before and --after must not be negative")
			}
			t, err := agent.SendTrigger(cmd.Context(), socket, request)
			if err != nil {
				return explainNoAgent(err)
			}
			if t.ID == "" {
				return fmt.Errorf("the agent refuses: %s: %s", t.Outcome, t.Detail)
			}
			fmt.Println(t.ID)
			return nil
		},
	}
	addSocketFlag(cmd, &socket)
	flags := cmd.Flags()
	flags.StringVar(&at, "at", "", "the `TIME` of the event, as 2026-01-01T12:00:00Z or Unix seconds (default: now)")
	flags.DurationVar(&request.Before, "before", 0, "keep `TIME` before the event (default: 10m)")
	flags.DurationVar(&request.After, "after", 0, "keep `TIME` after the event (default: 0)")
	flags.StringVar(&request.Job, "job", "", "the `ID` of the job, for the findings")
	flags.StringVar(&request.Reason, "reason", "", "`TEXT` for the findings")
	return cmd
}

// parseTriggerTime parses the flag --at.
func parseTriggerTime(text string, at *time.Time) error {
	if text == "" {
		return nil
	}
	if parsed, err := time.Parse(time.RFC3339Nano, text); err == nil {
		*at = parsed
		return nil
	}
	var seconds float64
	if n, err := fmt.Sscanf(text, "%f", &seconds); err != nil || n != 1 || !(seconds > 0 && seconds < 1<<33) {
		return message.Usagef("gpurec trigger --at 2026-01-01T12:00:00Z", "--at %s: is no time", text)
	}
	*at = time.Unix(0, int64(seconds*1e9))
	return nil
}

// refusedFile is the name of the file with the triggers that have no capture.
const refusedFile = "refused" + format.FindingsSuffix

// maxRefusedBytes bounds that file. It is begun again when it is full.
const maxRefusedBytes = 4 << 20

// capturePath returns the path of a sealed capture.
func capturePath(folder, id string) string { return filepath.Join(folder, id+format.CaptureSuffix) }
