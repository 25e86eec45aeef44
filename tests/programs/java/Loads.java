import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;

/**
 * Loads a class as often as the first argument says, each time as another class, and runs its method until it has used ten milliseconds of CPU. The
 * class loaders are dropped, so that classes are unloaded when garbage is collected: after so many as the second argument says.
 */
public class Loads {
    /** What is loaded. */
    public static class Loaded implements Runnable {
        static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();
        static volatile long sink;

        static long work(long count) {
            long sum = count;
            for (long i = 0; i < count; i++) {
                sum = sum * 31 + i;
            }
            return sum;
        }

        @Override
        public void run() {
            long end = THREADS.getCurrentThreadCpuTime() + 10_000_000;
            while (THREADS.getCurrentThreadCpuTime() < end) {
                for (int i = 0; i < 100; i++) {
                    sink += work(1000);
                }
            }
        }
    }

    /** Has one class. */
    static class Loader extends ClassLoader {
        Class<?> load(byte[] bytes) {
            return defineClass("Loads$Loaded", bytes, 0, bytes.length);
        }
    }

    public static void main(String[] arguments) throws Exception {
        byte[] bytes;
        try (InputStream stream = Loads.class.getResourceAsStream("Loads$Loaded.class")) {
            bytes = stream.readAllBytes();
        }
        int count = Integer.parseInt(arguments[0]), every = Integer.parseInt(arguments[1]);
        for (int loaded = 1; loaded <= count; loaded++) {
            Runnable work = (Runnable) new Loader().load(bytes).getDeclaredConstructor().newInstance();
            work.run();
            if (loaded % every == 0) {
                System.gc();
            }
        }
    }
}
