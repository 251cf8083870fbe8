"""xinetd: services of its own, which it forks for, and programs whose standard input and output are the
connection: one that loads the library, and a static one, which gets it through a bridge."""

import getpass

import harness

CONFIGURATION = """
defaults
{{
  instances = 50
  cps = 1000 1
  log_type = FILE /dev/null
}}
service echo
{{
  type = INTERNAL UNLISTED
  id = echo-stream
  socket_type = stream
  protocol = tcp
  user = {user}
  wait = no
  bind = 127.0.0.1
  port = {echo}
}}
service cat
{{
  type = UNLISTED
  socket_type = stream
  protocol = tcp
  user = {user}
  wait = no
  bind = 127.0.0.1
  port = {cat}
  server = /bin/cat
}}
service static-cat
{{
  type = UNLISTED
  socket_type = stream
  protocol = tcp
  user = {user}
  wait = no
  bind = 127.0.0.1
  port = {static_cat}
  server = {busybox}
  server_args = cat
}}
service sort
{{
  type = UNLISTED
  socket_type = stream
  protocol = tcp
  user = {user}
  wait = no
  bind = 127.0.0.1
  port = {sort}
  server = {sort_program}
  env = LC_ALL=C
}}
service static-sort
{{
  type = UNLISTED
  socket_type = stream
  protocol = tcp
  user = {user}
  wait = no
  bind = 127.0.0.1
  port = {static_sort}
  server = {busybox}
  server_args = sort
  env = LC_ALL=C
}}
"""


class Xinetd(harness.ProgramTest):
    def setUp(self):
        harness.need("xinetd", "busybox", "nc")
        super().setUp()

    def serve(self, service, ends):
        ports = {name: harness.free_port() for name in ("echo", "cat", "static_cat", "sort", "static_sort")}
        configuration = self.world.directory / f"xinetd-{ports['echo']}.conf"
        configuration.write_text(
            CONFIGURATION.format(
                user=getpass.getuser(),
                busybox=harness.find("busybox"),
                sort_program=harness.find("sort"),
                **ports,
            )
        )
        server = self.world.start(
            ["xinetd", "-dontfork", "-f", configuration, "-pidfile", self.world.directory / "xinetd.pid"],
            preload=ends.server,
        )
        self.world.wait_for_listener(ports[service], sdp=ends.server)
        return server, ports[service]

    def use(self, service, ends):
        server, port = self.serve(service, ends)
        for sizes in (b"1\n100000\n3\n", b"2000000\n"):
            answer = self.world.run_peer("echo-client", port, preload=ends.client, data=sizes)
            self.assertEqual(answer.count(b"ok"), sizes.count(b"\n"))
        self.assert_carried(port, ends, at_least=2)
        server.stop()

    def sort(self, service, ends):
        """A program whose stdio reads the connection inside the C library, to its end, and answers only
        then."""
        server, port = self.serve(service, ends)
        for count in 3, 50_000:
            lines = [b"%d\n" % (i * 7919 % 1_000_003) for i in range(count)]
            answer = self.world.run(
                ["nc", "-N", "127.0.0.1", port], preload=ends.client, data=b"".join(lines)
            )
            self.assertEqual(answer, b"".join(sorted(lines)))
        self.assert_carried(port, ends, at_least=2)
        server.stop()

    def test_a_service_of_its_own(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use("echo", ends)

    def test_a_program_as_service(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use("cat", ends)

    def test_a_program_that_reads_all_by_stdio(self):
        for service in "sort", "static_sort":
            for ends in harness.BOTH_AND_EACH_ALONE:
                with self.subTest(f"{service}, {ends}"):
                    self.sort(service, ends)

    def test_a_static_program_as_service(self):
        for ends in harness.BOTH_AND_EACH_ALONE:
            with self.subTest(str(ends)):
                self.use("static_cat", ends)


if __name__ == "__main__":
    harness.main()
