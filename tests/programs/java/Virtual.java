import java.lang.reflect.Method;
import java.util.concurrent.locks.LockSupport;

/**
 * Runs virtual threads, one after the other. First they only burn CPU, then they wait before they do: their outer frames are in the heap from then
 * on. Prints a line for both, as Stacks does.
 *
 * <pre>java Virtual MILLISECONDS ROUNDS     of time for both, and in each call of the leaf</pre>
 */
public class Virtual {
    static boolean waits;
    static long sink;

    static long deep(int depth) {
        return depth == 0 ? burn() : deep(depth - 1) + 1;
    }

    static long burn() {
        long sum = 0;
        if (waits) {
            LockSupport.parkNanos(1000);
        }
        for (int i = 0; i < 500; i++) {
            sum += Stacks.leaf();
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        long milliseconds = Long.parseLong(arguments[0]);
        Stacks.rounds = Integer.parseInt(arguments[1]);
        // Since JDK 21.
        Method start = Thread.class.getMethod("startVirtualThread", Runnable.class);
        Runnable work = () -> sink += deep(50);
        for (String name : new String[] {"mounted", "waited"}) {
            Stacks.told = null;
            waits = name.equals("waited");
            long end = System.nanoTime() + milliseconds * 500_000;
            while (System.nanoTime() < end) {
                ((Thread) start.invoke(null, work)).join();
            }
            System.out.println(name + Stacks.told);
        }
    }
}
