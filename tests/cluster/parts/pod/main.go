// What the pods of a cluster run that are not the speaker: `pause` holds a pod's namespaces, `web` answers a request, or
// a datagram, on port 8080 with the pod's node and the client's address. Without a libc, so that an image is one file.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

const address = ":8080"

func main() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGINT, syscall.SIGTERM)
	if filepath.Base(os.Args[0]) == "web" {
		serve(asked)
		return
	}
	signal.Ignore(syscall.SIGCHLD) // the kernel buries the orphans of a shared process namespace
	<-asked
}

// Once asked to stop it is no longer ready, and goes on answering: the cluster has to notice first.
func serve(asked <-chan os.Signal) {
	var leaving atomic.Bool
	http.HandleFunc("/ready", func(answer http.ResponseWriter, _ *http.Request) {
		if leaving.Load() {
			answer.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	http.HandleFunc("/", func(answer http.ResponseWriter, request *http.Request) {
		fmt.Fprintln(answer, who(request.RemoteAddr))
	})
	go func() { fail(http.ListenAndServe(address, nil)) }()
	go func() { fail(datagrams()) }()
	<-asked
	leaving.Store(true)
	time.Sleep(4 * time.Second)
}

func datagrams() error {
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	buffer := make([]byte, 2048)
	for {
		_, client, err := socket.ReadFrom(buffer)
		if err != nil {
			return err
		}
		socket.WriteTo([]byte(who(client.String())), client)
	}
}

func who(client string) string {
	host, _, _ := net.SplitHostPort(client)
	return os.Getenv("NODE") + " " + host
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
